use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn times_have_units() {
    assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
    assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
    assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    for bad in ["", "s", "1.2.3s", "-1s", "1d", "99999999999999999999999h", "1e9"] {
        assert!(parse_duration(bad).is_err(), "{bad}");
    }
    assert!(parse_interval("10ms").is_err());
    assert!(parse_interval("1s").is_ok());
}

#[test]
fn exec_takes_the_rest_of_the_line() {
    let parsed = Arguments::try_parse_from(["mirrorball", "exec", "web", "--", "ls", "-l", "--json"]).expect("good");
    let Command::Exec(exec) = parsed.command else { panic!("exec was given") };
    assert_eq!(exec.command, ["ls", "-l", "--json"]);
    assert!(Arguments::try_parse_from(["mirrorball", "exec", "web"]).is_err());
}

#[test]
fn names_are_checked() {
    assert!(Arguments::try_parse_from(["mirrorball", "kill", "no such"]).is_err());
    assert!(Arguments::try_parse_from(["mirrorball", "-m", "../x", "ls"]).is_err());
    assert!(Arguments::try_parse_from(["mirrorball", "ls", "-m", "demo"]).is_ok());
}

#[test]
fn help_reads_well() {
    let mut command = Arguments::command().term_width(100);
    insta::assert_snapshot!("help", command.render_help());
    insta::assert_snapshot!("help_long", command.render_long_help());
    for name in ["run", "console", "exec", "events", "demo", "top"] {
        let mut sub = command.find_subcommand(name).expect("it exists").clone().term_width(100);
        insta::assert_snapshot!(format!("help_{name}"), sub.render_help());
    }
}

/// Each status that `exec` has of its own stands in the help of all commands and in its own, and no other is promised there.
#[test]
fn help_tells_the_statuses_of_exec() {
    use crate::failure::Failure;

    let failed = Failure::Exec { cause: Box::new(Failure::Other(String::new())) };
    let error = machine::AgentError::StillRunning {
        vm: Name::new("web").expect("a name"),
        program: "sleep".to_owned(),
        pid: 1,
        after: Duration::from_secs(1),
    };
    let late = Failure::Exec { cause: Box::new(Failure::TimedOut { error }) };
    let mut command = Arguments::command();
    let all = command.render_long_help().to_string();
    let own = command.find_subcommand_mut("exec").expect("it exists").render_long_help().to_string();
    for status in [late.status(), failed.status(), 126, 127].map(|status| status.to_string()) {
        assert!(all.contains(&status) && own.contains(&status), "{status}");
    }
    assert!(!all.contains("with 1 if"), "{all}");
}
