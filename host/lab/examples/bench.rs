//! Runs an experiment without the host command: `cargo run -p lab --example bench -- exits [--quick] [--json] [--fresh]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| words.iter().any(|word| word == flag);
    let name = words.iter().find(|word| !word.starts_with("--")).map_or("exits", String::as_str);
    let options = lab::Options { quick: has("--quick"), verbose: true, fresh: has("--fresh"), only: None };
    match lab::run(name, &options) {
        Ok(report) if has("--json") => println!("{}", report.to_json()),
        Ok(report) => print!("{report}"),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
