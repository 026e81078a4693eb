use super::*;
use std::fs;

const AREA: &str = r#"{
  "title": "Speed", "order": 1, "intro": "How fast?",
  "records": [{
    "id": "speed", "says": "A compile takes so much.", "value": 1.04, "digits": 3, "unit": "", "target": {"at-most": 1.05},
    "peer": {"value": 2.554, "of": "KVM"}, "experiment": "overhead", "size": "quick",
    "command": "./x mirrorball bench overhead --quick", "date": "2026-01-02", "state": "carried-over",
    "note": "On one node.", "seen": "Of two runs."
  }, {
    "id": "bytes", "says": "The image has so many.", "value": 630784, "unit": "bytes", "target": {"at-most": 524288},
    "command": "size", "state": "carried-over"
  }]
}"#;

const README: &str = "# X\n<!-- begin: results/few.md -->\n<!-- end: results/few.md -->\ntail\n\
    <!-- begin: results/demo.txt -->old<!-- end: results/demo.txt -->\n";

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join(RESULTS)).expect("room");
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("room");
    put("docs/results/speed.json", AREA);
    put("docs/results/few.md", "{speed} times, KVM {speed.peer}; {bytes} bytes of {bytes.target}\n");
    put("docs/results/demo.txt", "$ demo\nok {not a figure}\n");
    put("README.md", README);
    dir
}

fn read(dir: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).expect("it is there")
}

fn found(value: f64) -> Found {
    let [id, experiment, size] = ["speed", "overhead", "quick"].map(str::to_owned);
    let [machine, commit, date] = ["virt", "0123456789ab", "2026-02-03"].map(str::to_owned);
    let (spread, remark) = (Some([1.0, 1.1]), "Radix sort.".to_owned());
    Found { id, experiment, size, value, spread, runs: 7, peer: Some(2.0), remark, machine, commit, date }
}

#[test]
fn pages_are_what_the_records_make_of_them() {
    let dir = tree();
    let claims = Claims::read(dir.path()).expect("good records");
    assert_eq!(claims.differences().expect("readable").len(), 2, "no page has been written yet");
    claims.write().expect("room");
    assert!(claims.differences().expect("readable").is_empty());
    assert!(claims.write().expect("room").is_empty(), "writing again changes nothing");

    let readme = read(&dir, "README.md");
    assert!(readme.contains("1.040 times, KVM 2.554; 630,784 bytes of 524288\n<!-- end"), "{readme}");
    assert!(readme.contains("```text\n$ demo\nok {not a figure}\n```\n<!-- end"), "{readme}");
    let page = read(&dir, PAGE);
    for part in ["| <= 1.05 | 2.554 (KVM) |", "| 2026-01-02 | reached, carried over |", "missed, carried over"] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
}

#[test]
fn times_are_told_in_words() {
    let record = Claims::read(tree().path()).expect("good records").record("speed").expect("it is there").clone();
    let told = |value, unit: &str| Record { value, unit: unit.to_owned(), ..record.clone() }.time();
    assert_eq!((told(44.0, "s").as_deref(), told(76.0, "s").as_deref()), (Some("44 s"), Some("1 min 16 s")));
    assert_eq!((told(120.0, "s").as_deref(), told(9.5, "min").as_deref()), (Some("2 min"), Some("9 min 30 s")));
    assert_eq!(told(59.9, "s").as_deref(), Some("1 min"));
    assert_eq!(told(1.0, "MiB"), None);
}

#[test]
fn a_text_of_a_committed_tree_replaces_the_one_before() {
    let dir = tree();
    let claims = Claims::read(dir.path()).expect("good records");
    let adopt = |commit| claims.adopt_text("demo.txt", "$ demo\nnew\n", commit).expect("it can be written");
    assert!(!adopt("0123456789ab-dirty") && !adopt("unknown"));
    assert!(adopt("0123456789ab") && !adopt("0123456789ab"));
    claims.write().expect("room");
    assert!(read(&dir, "README.md").contains("```text\n$ demo\nnew\n```"));
    assert!(claims.adopt_text("none.txt", "", "0123456789ab").is_err());
}

#[test]
fn a_figure_changed_by_hand_is_found() {
    let dir = tree();
    let claims = Claims::read(dir.path()).expect("good records");
    claims.write().expect("room");
    for name in ["README.md", PAGE] {
        let before = read(&dir, name);
        fs::write(dir.path().join(name), before.replace("1.040", "1.010")).expect("room");
        let different = claims.differences().expect("readable");
        assert_eq!(different.len(), 1, "{different:?}");
        assert!(different[0].starts_with(name), "{different:?}");
        fs::write(dir.path().join(name), before).expect("room");
    }
    // Text outside of blocks is the author's.
    fs::write(dir.path().join("README.md"), read(&dir, "README.md").replace("tail", "other tail")).expect("room");
    assert!(claims.differences().expect("readable").is_empty());
}

#[test]
fn what_no_record_has_is_refused() {
    let dir = tree();
    let claims = Claims::read(dir.path()).expect("good records");
    let refused = |readme: &str| {
        fs::write(dir.path().join("README.md"), readme).expect("room");
        claims.differences().expect_err("it must be refused").to_string()
    };
    assert!(refused("<!-- begin: results/few.md -->").contains("has no end"));
    assert!(refused("<!-- end: results/few.md -->").contains("has not begun"));
    assert!(refused(&README.replace("few.md", "none.md")).contains("none.md"));
    assert!(refused(&README.replace("few.md", "../few.md")).contains("no file"));
    fs::write(dir.path().join("docs/results/few.md"), "{speed.paper}").expect("room");
    assert!(refused(README).contains("speed.paper"));
    fs::write(dir.path().join("docs/results/again.json"), AREA).expect("room");
    assert!(Claims::read(dir.path()).expect_err("two of a name").to_string().contains("named"));
}

#[test]
fn a_finished_run_is_adopted_once() {
    let dir = tree();
    let mut claims = Claims::read(dir.path()).expect("good records");
    assert_eq!(claims.adopt(&found(1.06)), ["speed"]);
    assert!(claims.adopt(&found(1.06)).is_empty());
    let record = claims.record("speed").expect("it is there");
    assert_eq!((record.shown().as_str(), record.is_reached(), record.state), ("1.060", Some(false), State::Measured));
    assert_eq!(record.commit.as_deref(), Some("0123456789ab"));
    claims.write().expect("room");
    let page = read(&dir, PAGE);
    // What was said of the measurement before is gone; what holds of every measurement is not.
    for part in
        ["On one node. Radix sort. |", "| 1 to 1.1, 7 runs |", "| 0123456789ab | 2026-02-03 | missed |", "| 2 (KVM) |"]
    {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let again = Claims::find(&dir.path().join("docs")).expect("good records");
    assert_eq!(again.record("speed"), claims.record("speed"));
}

#[test]
fn results_of_other_runs_and_of_changed_trees_are_not_adopted() {
    let dir = tree();
    let mut claims = Claims::read(dir.path()).expect("good records");
    let others = [
        Found { size: "full".into(), ..found(1.0) },
        Found { experiment: "exits".into(), ..found(1.0) },
        Found { commit: "0123456789ab-dirty".into(), ..found(1.0) },
        Found { commit: "unknown".into(), ..found(1.0) },
        Found { value: f64::NAN, ..found(1.0) },
    ];
    for other in others {
        assert!(claims.adopt(&other).is_empty(), "{other:?} was adopted");
    }
}
