//! What a command of `mirrorball` needs beyond itself: found out first, told with its price, and made once its user agrees.
//!
//! A machine boots the monitor on an emulator; its file may name guests of the cache; an experiment boots workload guests as well.
//! What is only compiled needs no question. What is installed or downloaded does, unless `--yes` or `CI=true` answers it.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use claims::Claims;
use image::{Cache, CloudImage, Kernel, KvmHost, LoadParts, NfsDisk, RecipeKey, RootImage, UBoot};

use crate::tree::Tree;
use crate::{build, build_cloud, build_images, build_small_loads, setup};

/// Artifacts that `./x image` makes, as paths in the cache begin.
const IMAGES: [&str; 3] = ["kernel", "root", "u-boot"];
/// Experiments that boot nothing but probes and the images, whatever part of them is run. Parts of the others boot loads or not:
/// only the lab knows which, so all of them get them.
const WITHOUT_LOADS: [&str; 3] = ["bootscale", "machine", "pagecost"];

/// What a command needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The emulator, and programs for the bare machine.
    pub machine: bool,
    /// The guests.
    pub images: bool,
    /// The lab's workload guests.
    pub loads: bool,
    /// What `launch` boots: the firmware, and the image that it starts if nobody names one.
    pub cloud: Option<Cloud>,
}

/// What `launch` needs of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// U-Boot: the image is a file of the user's.
    Firmware,
    /// The project's image, too.
    Image,
}

/// What making something takes: minutes on two cores, and GiB in the cache.
#[derive(Clone, Copy, Debug)]
struct Making {
    minutes: f64,
    most: f64,
    then: f64,
}

impl std::fmt::Display for Making {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "about {} min, {:.1} GiB in the cache", self.minutes, self.then)?;
        if self.most > self.then {
            write!(f, ", up to {:.1} GiB while they are made", self.most)?;
        }
        Ok(())
    }
}

/// What things cost, from the same records as README's table.
struct Prices(Claims);

impl Prices {
    fn of(tree: &Tree) -> Result<Self> {
        Ok(Self(Claims::read(tree.root())?))
    }

    fn number(&self, id: &str) -> Result<f64> {
        self.0.record(id).map(|record| record.value).with_context(|| format!("docs/results has no record {id:?}"))
    }

    /// A time in seconds as whole minutes, which it does not exceed.
    fn minutes(&self, id: &str) -> Result<f64> {
        Ok((self.number(id)? / 60.0).ceil())
    }

    /// The Debian guests of `./x image`.
    fn guests(&self) -> Result<Making> {
        let (most, then) = (self.number("images_most_gib")?, self.number("images_gib")?);
        Ok(Making { minutes: self.minutes("images_seconds")?, most, then })
    }

    /// What `./x image --loads` makes besides.
    fn loads(&self) -> Result<Making> {
        let then = self.number("loads_gib")?;
        Ok(Making { minutes: self.minutes("loads_seconds")?, most: then, then })
    }

    fn packages(&self) -> Result<String> {
        let (minutes, mib) = (self.minutes("setup_seconds")?, self.number("packages_mib")?);
        Ok(format!("about {minutes} min with a good network, up to {mib} MiB"))
    }

    fn rust_targets(&self) -> Result<String> {
        Ok(format!("{:.1} GiB, by rustup", self.number("rust_targets_gib")?))
    }

    fn build(&self) -> Result<String> {
        let (minutes, gib) = (self.minutes("build_seconds")?, self.number("build_gib")?);
        Ok(format!("about {minutes} min, {gib:.1} GiB in target/ with the host command"))
    }
}

/// What becomes of a question that there is no terminal for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutTerminal {
    /// A no.
    Refuse,
    /// A yes: the command says itself that it sets everything up.
    GoOn,
}

/// Something that is missing, with its price.
struct Missing {
    what: String,
    price: String,
    /// Whether it comes from elsewhere, so that its user is asked first.
    is_fetched: bool,
}

/// `--yes` belongs to `./x`, wherever it stands before the words of a guest's command; whether it was there.
pub fn take_yes(arguments: &mut Vec<String>) -> bool {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let at = arguments.iter().take(end).position(|word| word == "--yes");
    at.map(|at| arguments.remove(at)).is_some()
}

/// Makes what these arguments of `mirrorball` need, if their user agrees.
///
/// # Errors
/// Something is missing and may not be fetched, or cannot be made; the message says what to do.
pub fn prepare(tree: &Tree, arguments: &[String], yes: bool) -> Result<()> {
    let needs = needs_of(arguments);
    if !needs.machine {
        return Ok(());
    }
    make(tree, needs, yes, WithoutTerminal::Refuse)
}

/// Makes what the demonstration needs on this machine, if its user agrees; where nobody can be asked, as in scripts, they do.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_demo(tree: &Tree, machine: &str, yes: bool) -> Result<()> {
    make(tree, needs_of_demo(machine), yes, WithoutTerminal::GoOn)
}

/// The guests bring the sums that the demonstration compares its results with, whatever the machine boots.
fn needs_of_demo(machine: &str) -> Needs {
    Needs { machine: true, images: true, ..in_file(machine, 0) }
}

fn make(tree: &Tree, needs: Needs, yes: bool, without_terminal: WithoutTerminal) -> Result<()> {
    let missing = missing_for(tree, needs)?;
    agree(&missing, yes || std::env::var("CI").is_ok_and(|value| value == "true"), without_terminal)?;
    if needs.images {
        let guests = build_images(tree)?;
        if needs.loads {
            build_small_loads(&guests.kernel)?;
            LoadParts::get_or_build(&Cache::open()?, &guests.kernel)?;
        }
    } else if needs.cloud == Some(Cloud::Image) {
        build_cloud(tree)?;
    } else {
        setup::emulator()?;
        if needs.cloud.is_some() {
            UBoot::get_or_build(&Cache::open()?)?;
        }
    }
    build::machine_programs(tree).map(drop)
}

/// What these arguments need; nothing if they only ask a question.
fn needs_of(arguments: &[String]) -> Needs {
    let own = || arguments.iter().map(String::as_str).take_while(|word| *word != "--");
    if own().any(|word| ["--help", "-h"].contains(&word)) {
        return Needs::default();
    }
    let mut words = own().filter(|word| !word.starts_with('-'));
    let machine_file =
        || own().find(|word| word.ends_with(".toml")).map_or_else(Needs::default, |file| in_file(file, 0));
    match words.next() {
        Some("run" | "demo") => Needs { machine: true, ..machine_file() },
        Some("launch") => Needs { machine: true, cloud: Some(cloud_of(arguments)), ..Needs::default() },
        Some("create") => {
            let guests = machine_file();
            Needs { machine: guests.images, ..guests }
        }
        Some("bench") => match words.next() {
            None | Some("list" | "report") => Needs::default(),
            Some(name) => {
                Needs { machine: true, images: true, loads: !WITHOUT_LOADS.contains(&name), ..Needs::default() }
            }
        },
        _ => Needs::default(),
    }
}

/// Whether `launch` names an image: a word that is neither an option nor an option's value.
fn cloud_of(arguments: &[String]) -> Cloud {
    const FLAGS: [&str; 3] = ["--network", "--no-wait", "--restricted"];
    let mut words = arguments.iter().skip_while(|word| *word != "launch").skip(1);
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None => return Cloud::Firmware,
            Some(option) if option.contains('=') || FLAGS.contains(&word.as_str()) => {}
            Some(_) => drop(words.next()),
        }
    }
    Cloud::Image
}

/// The guests that a machine file names, or the VM files in it. A file that cannot be read is for `mirrorball` to complain about.
fn in_file(file: impl AsRef<Path>, depth: u32) -> Needs {
    let file = file.as_ref();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let strings = code.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    let mut needs = Needs::default();
    for string in strings {
        if let Some(cached) = string.strip_prefix("cache:") {
            let part = cached.split('/').next().unwrap_or_default();
            needs.images |= IMAGES.contains(&part);
            needs.loads |= part.starts_with("loads-") || part == "kvm-host";
        } else if string.ends_with(".toml") && depth == 0 {
            let inside = in_file(file.parent().unwrap_or(Path::new("")).join(&string), depth + 1);
            needs.images |= inside.images;
            needs.loads |= inside.loads;
        }
    }
    needs.images |= needs.loads;
    needs
}

/// What of it is not there, with its price.
fn missing_for(tree: &Tree, needs: Needs) -> Result<Vec<Missing>> {
    let (prices, mut missing) = (Prices::of(tree)?, Vec::new());
    let mut lacks = |what: &str, price: &str, is_fetched| {
        missing.push(Missing { what: what.to_owned(), price: price.to_owned(), is_fetched });
    };
    let packages = if needs.images || needs.cloud == Some(Cloud::Image) {
        setup::missing_packages()
    } else {
        setup::missing_emulator()
    };
    if !packages.is_empty() {
        let what = format!("packages on this machine: {}", packages.join(", "));
        lacks(&what, &prices.packages()?, true);
    }
    if !setup::has_rust_targets()? {
        lacks("Rust's libraries for the bare machine", &prices.rust_targets()?, true);
    }
    if !build::monitor_place(tree)?.exists() {
        lacks("the monitor, probes and plugins, built from this tree", &prices.build()?, false);
    }
    let cache = Cache::default_root()?;
    let is_there = |key: RecipeKey| {
        // A folder where the cache has a link is its user's own.
        let link = cache.join(key.kind());
        cache.join(key.to_string()).is_dir() || (link.is_dir() && !link.is_symlink())
    };
    if needs.images && ![Kernel::recipe(), UBoot::recipe(), RootImage::recipe()].into_iter().all(is_there) {
        lacks("the Debian guests", &prices.guests()?.to_string(), true);
    }
    if needs.cloud.is_some() && !is_there(UBoot::recipe()) {
        lacks("U-Boot, the firmware that boots cloud images", "a package of Debian", true);
    }
    if needs.cloud == Some(Cloud::Image) && ![Kernel::recipe(), CloudImage::recipe()].into_iter().all(is_there) {
        lacks("the cloud image", "10 to 15 min, 0.6 GiB in the cache, up to 1.5 GiB while it is made", true);
    }
    let loads = LoadParts::recipes().into_iter().chain([KvmHost::recipe(), NfsDisk::recipe()]);
    if needs.loads && !loads.into_iter().all(is_there) {
        lacks("the lab's workload guests", &prices.loads()?.to_string(), true);
    }
    Ok(missing)
}

/// Says what is missing; asks whether to get it where something has to be fetched.
fn agree(missing: &[Missing], yes: bool, without_terminal: WithoutTerminal) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("x: this needs, and makes now:");
    for one in missing {
        eprintln!("  {} ({})", one.what, one.price);
    }
    if yes || missing.iter().all(|one| !one.is_fetched) {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        if without_terminal == WithoutTerminal::GoOn {
            return Ok(());
        }
        bail!(
            "nothing is installed or downloaded without a yes, and there is no terminal to ask on: say --yes (or CI=true), or run \
             `./x setup` and `./x image` first (`./x image --loads` for experiments)"
        );
    }
    eprint!("Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    ensure!(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()), "nothing was installed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn yes_is_not_taken_from_a_guests_command() {
        let mut arguments = words("run --yes m.toml");
        assert!(take_yes(&mut arguments));
        assert_eq!(arguments, words("run m.toml"));
        let mut arguments = words("exec vm -- apt --yes");
        assert!(!take_yes(&mut arguments));
        assert_eq!(arguments.len(), 5);
    }

    #[test]
    fn each_command_needs_what_it_boots() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let machine = Needs { machine: true, ..Needs::default() };
        let guests = Needs { images: true, ..machine };
        let launched = |cloud| Needs { cloud: Some(cloud), ..machine };
        for (text, cloud) in [
            ("launch", Cloud::Image),
            ("launch --cpus 2 --network --name=web", Cloud::Image),
            ("launch debian.qcow2 --cpus 2", Cloud::Firmware),
            ("launch --no-wait noble", Cloud::Firmware),
        ] {
            assert_eq!(needs_of(&words(text)), launched(cloud), "{text}");
        }
        let own = file("own.toml", "kernel = \"Image\" # not \"cache:kernel/Image\"\n");
        assert_eq!(needs_of(&words(&format!("run --detach {own}"))), machine);
        let debian = file("debian.toml", "kernel = \"cache:kernel/Image\"\n");
        assert_eq!(needs_of(&words(&format!("run {debian}"))), guests);
        assert_eq!(needs_of(&words(&format!("create {debian}"))), guests);
        assert_eq!(needs_of(&words(&format!("create {own}"))), Needs::default());
        let around = file("around.toml", "[[vm]]\nfile = \"debian.toml\"\n");
        assert_eq!(needs_of(&words(&format!("run {around}"))), guests);
        let load = file("load.toml", "initrd = \"cache:loads-base/base.cpio\"\n");
        assert_eq!(needs_of(&words(&format!("run {load}"))), Needs { loads: true, ..guests });
        // As docs/claims.md has them, and a part of one.
        for loaded in ["overhead --quick", "exits --quick", "sharing --only vms", "scalability --only=pmake"] {
            assert_eq!(needs_of(&words(&format!("bench {loaded}"))), Needs { loads: true, ..guests }, "{loaded}");
        }
        for probes in ["machine", "bootscale", "pagecost --quick", "bootscale --only harts"] {
            assert_eq!(needs_of(&words(&format!("bench {probes}"))), guests, "{probes}");
        }
        for question in ["bench list", "bench report --write", "run --help", "ls", "exec vm -- run x.toml", ""] {
            assert_eq!(needs_of(&words(question)), Needs::default(), "{question}");
        }
    }

    #[test]
    fn nothing_is_fetched_without_a_yes() {
        let one = |is_fetched| [Missing { what: "it".into(), price: "much".into(), is_fetched }];
        let agreed = |missing: &[Missing], yes| agree(missing, yes, WithoutTerminal::Refuse);
        assert!(agreed(&[], false).is_ok());
        assert!(agreed(&one(false), false).is_ok());
        assert!(agreed(&one(true), true).is_ok());
        if !std::io::stdin().is_terminal() {
            let refusal = agreed(&one(true), false).unwrap_err().to_string();
            assert!(refusal.contains("--yes") && refusal.contains("`./x setup`"), "{refusal}");
            // Scripts that run the demonstration go on as before.
            assert!(agree(&one(true), false, WithoutTerminal::GoOn).is_ok());
        }
    }

    #[test]
    fn the_demo_needs_the_guests_whatever_it_boots() {
        let guests = Needs { machine: true, images: true, ..Needs::default() };
        assert_eq!(needs_of_demo("no such file"), guests);
        assert_eq!(needs_of_demo(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/demo.toml")), guests);
    }

    #[test]
    fn prices_name_the_cache_when_it_is_largest_and_what_stays() {
        let making = |most| Making { minutes: 3.0, most, then: 0.7 }.to_string();
        assert_eq!(making(1.3), "about 3 min, 0.7 GiB in the cache, up to 1.3 GiB while they are made");
        assert_eq!(making(0.7), "about 3 min, 0.7 GiB in the cache");
    }

    #[test]
    fn every_price_has_its_record() {
        let prices = Prices::of(&Tree::find().unwrap()).unwrap();
        let (guests, loads) = (prices.guests().unwrap(), prices.loads().unwrap());
        let both = prices.number("images_loads_gib").unwrap();
        assert!((guests.then + loads.then - both).abs() < 0.05, "README's table says {both} GiB of both");
        assert!(guests.most >= guests.then && guests.minutes >= 1.0);
        for text in [prices.packages().unwrap(), prices.rust_targets().unwrap(), prices.build().unwrap()] {
            assert!(text.contains("iB"), "{text}");
        }
    }
}
