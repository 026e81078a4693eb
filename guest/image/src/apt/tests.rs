//! apt against a mirror in a folder: whole, torn in the middle of an update, and moved on.

use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::*;

const SUITE: &str = "trixie";

/// A mirror with the package `thing`, and apt's folders beside it.
struct Mirrored {
    dir: tempfile::TempDir,
}

impl Mirrored {
    fn new(version: &str) -> Self {
        let mirrored = Self { dir: tempfile::tempdir().unwrap() };
        mirrored.publish(version);
        mirrored
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn release(&self) -> PathBuf {
        self.path("mirror/dists").join(SUITE)
    }

    /// Offers this version alone, as a mirror does after an update.
    fn publish(&self, version: &str) {
        let _ = fs::remove_dir_all(self.path("mirror"));
        let (tree, pool) = (self.path("tree"), self.path("mirror/pool"));
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        fs::create_dir_all(&pool).unwrap();
        let control = format!(
            "Package: thing\nVersion: {version}\nArchitecture: all\nMaintainer: Me <me@example.org>\nDescription: a thing\n"
        );
        fs::write(tree.join("DEBIAN/control"), &control).unwrap();
        let file = format!("thing_{version}_all.deb");
        output_of(tool("dpkg-deb").unwrap().arg("--build").arg(&tree).arg(pool.join(&file))).unwrap();
        let deb = fs::read(pool.join(&file)).unwrap();
        let entry = format!("{control}Filename: pool/{file}\nSize: {}\nSHA256: {}\n\n", deb.len(), sum(&deb));
        self.write_index(&[("main/binary-riscv64/Packages", entry.as_bytes()), ("main/source/Sources", b"")]);
    }

    fn write_index(&self, files: &[(&str, &[u8])]) {
        let mut release = format!("Suite: {SUITE}\nCodename: {SUITE}\nArchitectures: riscv64\nComponents: main\n");
        release.push_str("Date: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n");
        for (name, bytes) in files {
            fs::create_dir_all(self.release().join(name).parent().unwrap()).unwrap();
            fs::write(self.release().join(name), bytes).unwrap();
            release.push_str(&format!(" {} {} {name}\n", sum(bytes), bytes.len()));
        }
        fs::write(self.release().join("Release"), release).unwrap();
    }

    /// As in the middle of an update: a new Release file that describes another index file than the one that is there.
    fn tear(&self) {
        let index = self.release().join("main/binary-riscv64/Packages");
        let old = fs::read(&index).unwrap();
        let new = [&old[..], b"Package: other\n\n"].concat();
        self.write_index(&[("main/binary-riscv64/Packages", new.as_slice()), ("main/source/Sources", b"")]);
        fs::write(index, [&old[..], b"# half"].concat()).unwrap();
    }

    fn apt(&self) -> PrivateApt {
        let mirror = Mirror { uri: format!("copy:{}", self.path("mirror").display()), keyring: "/dev/null".into() };
        let mut apt = PrivateApt::foreign(&self.path("apt"), &mirror, SUITE, "riscv64").unwrap();
        // The mirror has no signature: what is tested is what happens before and after one is verified.
        apt.option("Acquire::AllowInsecureRepositories", "true");
        apt.option("APT::Get::AllowUnauthenticated", "true");
        apt
    }

    /// The lists that are there were fetched so long ago.
    fn age(&self, days: u64) {
        let stamp = File::options().write(true).open(self.path("apt").join(SUITE).join("fetched")).unwrap();
        stamp.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
    }

    fn download(&self, apt: &PrivateApt) -> Result<Vec<String>> {
        let debs = self.path("debs");
        let _ = fs::remove_dir_all(&debs);
        let files = apt.download_with_dependencies(&["thing"], &debs, "packages")?;
        Ok(files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One line for a person: what is wrong with which file, and none of what apt says on the way.
#[track_caller]
fn assert_one_cause(error: &anyhow::Error) {
    let text = format!("{error:#}");
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    assert!(!text.contains("Get:") && !text.contains("apt-get"), "{text}");
}

/// Names and times of all that the machine's own apt keeps.
fn machine_state() -> Vec<(PathBuf, Duration)> {
    let folders = ["/var/lib/apt", "/var/lib/apt/lists", "/var/cache/apt", "/var/cache/apt/archives"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let time = |path: &Path| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let mut all: Vec<_> = entries.filter_map(|entry| Some((entry.path(), time(&entry.path())?))).collect();
    all.sort();
    all
}

#[test]
fn lists_of_a_whole_mirror_are_fetched_and_packages_come() {
    let before = machine_state();
    let mirrored = Mirrored::new("1.0");
    let apt = mirrored.apt();
    apt.update().unwrap();
    assert_eq!(apt.candidate_version("thing").unwrap(), "1.0");
    assert_eq!(mirrored.download(&apt).unwrap(), ["thing_1.0_all.deb"]);
    assert_eq!(machine_state(), before, "the machine's own apt noticed");
}

#[test]
fn a_torn_mirror_does_not_matter_while_lists_are_young() {
    let mirrored = Mirrored::new("1.0");
    mirrored.apt().update().unwrap();
    mirrored.tear();
    let apt = mirrored.apt();
    assert!(!apt.update_lists(Fetch::IfOld).unwrap(), "nothing had to be fetched");
    assert_eq!(mirrored.download(&apt).unwrap(), ["thing_1.0_all.deb"]);
}

#[test]
fn a_torn_mirror_leaves_older_lists_in_use() {
    let mirrored = Mirrored::new("1.0");
    mirrored.apt().update().unwrap();
    mirrored.age(3);
    mirrored.tear();
    let apt = mirrored.apt();
    assert!(!apt.update_lists(Fetch::IfOld).unwrap(), "the update was to fail");
    assert_eq!(apt.candidate_version("thing").unwrap(), "1.0");
    assert_eq!(mirrored.download(&apt).unwrap(), ["thing_1.0_all.deb"]);
}

#[test]
fn a_torn_mirror_without_older_lists_is_one_clear_error() {
    let mirrored = Mirrored::new("1.0");
    mirrored.tear();
    let error = mirrored.apt().update().unwrap_err();
    assert_one_cause(&error);
    let text = format!("{error:#}");
    assert!(text.contains("none are here") && text.contains("Packages"), "{text}");
    assert!(text.contains("size") || text.contains("Hash"), "{text}");
}

#[test]
fn a_package_that_has_gone_missing_makes_one_update() {
    let mirrored = Mirrored::new("1.0");
    mirrored.apt().update().unwrap();
    mirrored.publish("1.1");
    let apt = mirrored.apt();
    apt.update().unwrap();
    assert_eq!(apt.candidate_version("thing").unwrap(), "1.0", "the lists are young");
    assert_eq!(mirrored.download(&apt).unwrap(), ["thing_1.1_all.deb"]);
    // What the new lists do not have either is not looked for again.
    fs::remove_dir_all(mirrored.path("mirror/pool")).unwrap();
    fs::remove_dir_all(mirrored.path("apt/cache")).unwrap();
    fs::create_dir_all(mirrored.path("apt/cache/archives/partial")).unwrap();
    mirrored.tear();
    assert_one_cause(&mirrored.download(&apt).unwrap_err());
    let unknown = apt.candidate_version("no-such-thing").unwrap_err();
    assert_eq!(unknown.to_string(), "the mirror offers no package `no-such-thing`");
}

#[test]
fn what_is_gone_from_a_torn_mirror_is_one_clear_error() {
    let mirrored = Mirrored::new("1.0");
    mirrored.apt().update().unwrap();
    mirrored.publish("1.1");
    mirrored.tear();
    let error = mirrored.download(&mirrored.apt()).unwrap_err();
    assert_one_cause(&error);
    assert!(format!("{error:#}").contains("thing_1.0_all.deb"), "{error:#}");
}

/// On a fresh machine there may be no lists but those that came with it.
#[test]
fn installing_may_use_the_lists_of_the_machines_own_apt() {
    let mirrored = Mirrored::new("1.0");
    let own = mirrored.apt();
    own.update().unwrap();
    let theirs = mirrored.path("machine");
    fs::rename(mirrored.path("apt").join(SUITE), &theirs).unwrap();
    mirrored.tear();
    let mut apt = mirrored.apt();
    assert!(apt.update().is_err(), "nobody may use them for guests");
    let options = ["SourceParts=sources", "State::Lists=lists"].map(|option| {
        let (name, folder) = option.split_once('=').unwrap();
        let section = if name.starts_with("State") { "Dir::" } else { "Dir::Etc::" };
        ["-o".to_owned(), format!("{section}{name}={}", theirs.join(folder).display())]
    });
    let options = options.concat().into_iter().chain(["-o".into(), "Dir::Etc::SourceList=/dev/null".into()]).collect();
    apt.machine = Some(MachineLists { files: theirs.join("lists"), options });
    apt.update().unwrap();
    assert_eq!(apt.candidate_version("thing").unwrap(), "1.0");
    assert_eq!(mirrored.download(&apt).unwrap(), ["thing_1.0_all.deb"]);
    // Without any, the error is the update's.
    apt.machine = Some(MachineLists { files: mirrored.path("none"), options: Vec::new() });
    assert_one_cause(&apt.update().unwrap_err());
}

#[test]
fn an_error_is_the_first_cause_alone() {
    let torn = "`apt-get update` failed (exit status: 100):\nGet:1 http://m.example/debian trixie InRelease\n\
        E: Failed to fetch http://m.example/debian/dists/trixie/main/binary-riscv64/Packages.xz  File has unexpected \
        size (1 != 2). Mirror sync in progress? [IP: 10.0.0.1 80]\n   Hashes of expected file:\n\
        E: Some index files failed to download. They have been ignored, or old ones used instead.";
    let expected = "trixie/main/binary-riscv64/Packages.xz: File has unexpected size (1 != 2). Mirror sync in \
        progress? [IP: 10.0.0.1 80]";
    assert_eq!(cause(torn).unwrap(), expected);
    assert_eq!(cause("Reading...\nE: Unable to locate package nix\n").unwrap(), "Unable to locate package nix");
    assert_eq!(cause("killed"), None);
}
