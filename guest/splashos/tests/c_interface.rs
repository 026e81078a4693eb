//! A C program that uses all macros of `anl.h`: with POSIX threads, and with this crate's functions, on the host.

use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(to: &Path, options: &[&str], more: &[&Path]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function", "-D_GNU_SOURCE"]);
    cc.arg("-I").arg(folder).args(options).arg("-o").arg(to).arg(folder.join("tests/sums.c")).args(more);
    let output = cc.args(["-lpthread", "-ldl", "-lm"]).output().expect("a C compiler, with which Rust links, too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn assert_right(program: &Path) {
    let output = Command::new(program).output().expect("it was just made");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sums are right\n");
}

/// The archive that cargo made beside this test; the newest, as those of older builds stay.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a place");
    let folder = test.parent().expect("in a folder").read_dir().expect("that can be read");
    let paths = folder.filter_map(|entry| Some(entry.ok()?.path()));
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libsplashos") && name.ends_with(".a")
    };
    let made = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    paths.filter(is_archive).max_by_key(made).expect("the library is an archive, too")
}

#[test]
fn a_c_program_runs_on_posix_threads() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sums-posix");
    compile(&program, &[], &[]);
    assert_right(&program);
}

#[test]
fn the_same_program_runs_on_this_library() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sums-library");
    compile(&program, &["-DSPLASHOS"], &[&archive()]);
    assert_right(&program);
}
