//! Which mode a page should have: by counts, with hysteresis.

use dsm_wire::{Mode, Want};

use crate::config::{Config, Protocol};
use crate::state::{Local, Plan};

/// Stores by others after the last atomic, from which a page with a single writer gets many again.
const PLAIN: u8 = 8;
/// How often the patience of [`run_limit`] doubles.
const RETURNS: u8 = 3;

/// Whether the page is needed in so many places that stores should be sent.
pub fn is_shared(config: &Config, page: &Local) -> bool {
    page.history.shared >= config.to_update
}

/// What the owner does for somebody who wants `page`.
pub fn answer(config: &Config, page: &Local, want: Want) -> Plan {
    match (want, page.mode, config.protocol) {
        (Want::Read, ..) => Plan::Copy,
        (Want::Sole, ..) | (_, _, Protocol::Invalidate) => Plan::Take,
        (Want::Write, Mode::Multi, _) => Plan::Multi,
        (Want::Write, Mode::Single, _) if page.history.plain >= PLAIN => Plan::Multi,
        (Want::Write, Mode::Single, _) => Plan::Single,
        (Want::Write, Mode::Invalidate, _) if is_shared(config, page) => Plan::Multi,
        (Want::Write, Mode::Invalidate, _) => Plan::Take,
        (Want::Atomic, _, Protocol::Update) => Plan::Take,
        (Want::Atomic, Mode::Multi | Mode::Single, _) => Plan::Single,
        (Want::Atomic, Mode::Invalidate, _) if is_shared(config, page) => Plan::Single,
        (Want::Atomic, Mode::Invalidate, _) => Plan::Take,
    }
}

/// Somebody else wants the page: counts it.
pub fn count(page: &mut Local, want: Want) {
    page.run = 0;
    let history = &mut page.history;
    match want {
        Want::Read if page.rights < crate::Rights::ReadWrite => {}
        Want::Read | Want::Write | Want::Atomic => history.shared = history.shared.saturating_add(1),
        Want::Sole => alone(page),
    }
    match want {
        Want::Write if page.mode == Mode::Single => page.history.plain = page.history.plain.saturating_add(1),
        Want::Atomic => page.history.plain = 0,
        _ => {}
    }
}

/// The page goes back to one user.
pub fn alone(page: &mut Local) {
    page.run = 0;
    page.history.shared = 0;
    page.history.returns = (page.history.returns + 1).min(RETURNS);
}

/// Stores in a row after which a machine should have the only copy.
pub fn run_limit(config: &Config, page: &Local) -> u8 {
    config.to_invalidate.saturating_mul(1 << page.history.returns.min(RETURNS))
}
