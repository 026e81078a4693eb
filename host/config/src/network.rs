//! `[network]`: the machine's network card, and where it leads.

use std::net::SocketAddrV4;

use crate::check::Places;
use crate::plan::{Forward, Reach, Uplink};
use crate::reader::Section;

/// The card, if there is one.
pub fn read(top: &Section<'_>, places: &mut Places) -> Option<Uplink> {
    let network = top.table("network");
    if network.is_none() && top.has("network") {
        places.doubt("network");
    }
    let section = network?;
    let has_card = section.boolean("uplink").is_none_or(|at| at.value);
    let reach = section.choice("reach", &[("nothing", Reach::Nothing), ("host", Reach::Host)]);
    if let Some(reach) = reach.as_ref().filter(|at| at.value == Reach::Host) {
        let what = "lets VMs call the Internet and every port of this host, as its user does";
        section.grant(&reach.place, "reach", what);
    }
    let uplink = Uplink { reach: reach.map_or(Reach::Nothing, |at| at.value), forwards: read_forwards(&section) };
    if !has_card && uplink != Uplink::default() {
        let help = Some("leave `uplink` out".to_owned());
        section.error(&section.place_of("uplink"), "uplink", "without it nothing leads anywhere", help);
    }
    section.finish();
    has_card.then_some(uplink)
}

fn read_forwards(network: &Section<'_>) -> Vec<Forward> {
    let mut forwards: Vec<Forward> = Vec::new();
    for section in network.tables("forward") {
        let host = section.number("host", 1..=u16::MAX);
        let guest = section.parsed::<SocketAddrV4>("guest").map(|at| at.value);
        let guest = section.require("guest", guest, "where it leads: for example guest = \"10.0.2.15:22\"");
        let host = section.require("host", host, "a port of this host: for example host = 2222");
        section.finish();
        let (Some(host), Some(guest)) = (host, guest) else { continue };
        if forwards.iter().any(|other| other.host_port == host.value) {
            section.error(&host.place, "host", format!("port {} leads somewhere already", host.value), None);
        }
        section.grant(&host.place, "host", format!("opens port {} of this host", host.value));
        forwards.push(Forward { host_port: host.value, guest });
    }
    forwards
}
