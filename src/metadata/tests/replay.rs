//! Text tests of state machines: a file of commands, after `----` what they must lead to. With `UPDATE_EXPECT` set, what
//! happened is written into the files. Knows no commands; who runs them is an argument.

use std::fmt::Write as _;
use std::path::Path;

/// Replays every script in `directory`, each with a machine of its own: it runs one command and tells what happened.
pub(crate) fn check_scripts<M: FnMut(&str) -> String>(directory: &str, machine: impl Fn() -> M) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut scripts = 0;
    for entry in std::fs::read_dir(directory).expect("the scripts") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a script");
        let replayed = replay(&text, machine());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &replayed).expect("the script is writable");
        } else {
            assert!(text == replayed, "{}: expected\n{text}\nbut it is\n{replayed}", path.display());
        }
        scripts += 1;
    }
    assert!(scripts > 0);
}

/// The script with every expectation replaced by what happened.
fn replay(text: &str, mut run: impl FnMut(&str) -> String) -> String {
    let mut replayed = String::new();
    let mut happened = String::new();
    let mut in_expectation = false;
    for line in text.lines() {
        if line == "----" {
            in_expectation = true;
            write!(replayed, "----\n{happened}").unwrap();
            happened.clear();
        } else if in_expectation && !line.is_empty() {
            continue;
        } else {
            in_expectation = false;
            writeln!(replayed, "{line}").unwrap();
            if !line.is_empty() && !line.starts_with('#') {
                happened += &run(line);
            }
        }
    }
    replayed
}
