//! The compiler for the compile workload: taken from the Debian root image, with the libraries that it needs, and a C
//! program to compile.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use image::Archive;

use crate::artifacts;

/// Byte of the root image where its file system begins.
const FILE_SYSTEM: u64 = 1 << 20;
const LIBRARIES: &str = "/usr/lib/riscv64-linux-gnu";
/// The compiler's libraries; those that an image does not have are left out.
const NEEDED: [&str; 8] = [
    "libisl.so.23",
    "libmpc.so.3",
    "libmpfr.so.6",
    "libgmp.so.10",
    "libz.so.1",
    "libzstd.so.1",
    "libm.so.6",
    "libc.so.6",
];
const LOADER: &str = "ld-linux-riscv64-lp64d.so.1";

/// Adds `/compile` and `/source.c`. The error says why that is not possible.
pub fn add_to(archive: &mut Archive, dir: &Path, quick: bool) -> Result<(), String> {
    let root = artifacts::cached("root/root.img").map_err(|error| error.to_string())?;
    let compiler = (12..=16).rev().find_map(|version| {
        let path = format!("/usr/libexec/gcc/riscv64-linux-gnu/{version}/cc1");
        extract(&root, &path, dir).ok()
    });
    let compiler = compiler.ok_or("there is no compiler in the root image (or debugfs is not installed)")?;
    archive.directory("lib").file("compile", 0o755, &compiler);
    for library in NEEDED {
        if let Ok(content) = extract(&root, &format!("{LIBRARIES}/{library}"), dir) {
            archive.file(&format!("lib/{library}"), 0o755, &content);
        }
    }
    let loader = extract(&root, &format!("{LIBRARIES}/{LOADER}"), dir)?;
    archive.file(&format!("lib/{LOADER}"), 0o755, &loader);
    archive.file("source.c", 0o644, source(if quick { 30 } else { 120 }).as_bytes());
    Ok(())
}

/// A file of the image; a link is followed once.
fn extract(root: &Path, path: &str, dir: &Path) -> Result<Vec<u8>, String> {
    let out = dir.join("extracted");
    let _ = std::fs::remove_file(&out);
    let request = format!("dump {path} {}", out.display());
    debugfs(root, &request)?;
    let content = std::fs::read(&out).unwrap_or_default();
    if !content.is_empty() {
        return Ok(content);
    }
    let stat = debugfs(root, &format!("stat {path}"))?;
    let target = stat.lines().find_map(|line| line.trim().strip_prefix("Fast link dest: "));
    let target = target.map(|text| text.trim_matches('"')).ok_or(format!("the root image has no {path}"))?;
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if target.starts_with('/') { target.to_owned() } else { format!("{folder}/{target}") };
    debugfs(root, &format!("dump {path} {}", out.display()))?;
    std::fs::read(&out).ok().filter(|content| !content.is_empty()).ok_or(format!("the root image has no {path}"))
}

fn debugfs(root: &Path, request: &str) -> Result<String, String> {
    let image = format!("{}?offset={FILE_SYSTEM}", root.display());
    let run = |program: &str| Command::new(program).args(["-R", request, &image]).output();
    let output = run("debugfs").or_else(|_| run("/usr/sbin/debugfs")).map_err(|error| format!("debugfs: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A C program of so many functions, with loops, tables, structures and calls, as programs have.
fn source(functions: usize) -> String {
    let mut text = String::from(
        "struct node { struct node *left, *right; long key; char name[24]; };\n\
         static long table[256];\nextern void *get(unsigned long);\nextern int print(const char *, ...);\n",
    );
    for index in 0..functions {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "static struct node *insert_{index}(struct node *at, long key) {{\n\
             \x20 if (!at) {{ at = get(sizeof *at); at->left = at->right = 0; at->key = key; \
             for (int i = 0; i < 23; i++) at->name[i] = 'a' + (key + i * {step}) % 26; at->name[23] = 0; return at; }}\n\
             \x20 if (key < at->key) at->left = insert_{index}(at->left, key); else if (key > at->key) \
             at->right = insert_{index}(at->right, key);\n  return at;\n}}\n\
             long work_{index}(const unsigned char *text, unsigned long len) {{\n\
             \x20 struct node *root = 0; long sum = {index};\n\
             \x20 for (unsigned long i = 0; i < len; i++) {{\n\
             \x20   switch (text[i] % 7) {{ case 0: sum += table[text[i]] * {step}; break; \
             case 1: sum ^= sum << 3; break; case 2: table[(sum + i) & 255] += i; break; \
             case 3: root = insert_{index}(root, sum ^ i); break; case 4: sum -= (long)(i / {step}); break; \
             default: sum = sum * 31 + text[i]; }}\n  }}\n\
             \x20 while (root) {{ print(\"%ld %s\\n\", root->key, root->name); \
             root = sum & 1 ? root->left : root->right; sum >>= 1; }}\n  return sum;\n}}\n",
            step = index + 3,
        );
    }
    text
}
