//! How many files this process may have open: sockets and the files of logs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Without a limit there is no need for more.
const UNLIMITED: u64 = 1 << 20;

/// Raises the limit as far as this process may, which service managers and shells leave at 1024. Returns the limit.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(UNLIMITED);
    let is_raised = current.is_some_and(|current| current < wanted)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    let limit = if is_raised { wanted } else { current.unwrap_or(UNLIMITED) };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How many of them the logs may have.
pub fn for_logs(limit: usize) -> usize {
    (limit / 2).max(16)
}
