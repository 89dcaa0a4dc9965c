//! The `floodmark` binary: hands the command line to `floodmark::cli`.

fn main() -> std::process::ExitCode {
    floodmark::cli::main()
}
