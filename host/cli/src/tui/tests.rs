use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Overlay, Tab, VmColumn};
use super::draw::draw;
use super::keys::Reaction;
use super::theme::Theme;
use crate::model::fixture::{DEMO, Size, sample, view};
use crate::model::{EventView, MachineView};
use crate::output::Tone;

const LARGE: Size = Size { nodes: 8, harts_per_node: 8, vms: 40, vcpus: 4 };
const SMALL: Size = Size { nodes: 1, harts_per_node: 1, vms: 0, vcpus: 0 };

fn event(sequence: u64, vm: &str, text: &str, tone: Tone) -> EventView {
    EventView {
        sequence,
        time_s: sequence as f64 * 0.75,
        hart: 1,
        cell: 0,
        vm: Some(vm.into()),
        event: "vm-started",
        text: text.into(),
        details: serde_json::Value::Null,
        tone,
    }
}

fn app(machine: Option<MachineView>, has_machine: bool) -> App {
    let mut app = App::new(Theme::new(false), Duration::from_secs(1), has_machine);
    if let Some(machine) = machine {
        for _ in 0..30 {
            app.set_view(machine.clone());
        }
    }
    app.add_events([event(1, "build-1", "created: 2 vCPUs, 512 MiB", Tone::Plain)]);
    app.add_events((2..40).map(|n| event(n, "build-2", "vCPU 1 started", Tone::Good)));
    app.log = (0..60).map(|n| format!("[{n:>4}] mirrorball: a line of the monitor's log")).collect();
    app
}

fn picture(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    terminal.draw(|frame| draw(frame, app)).expect("it draws");
    terminal.backend().to_string()
}

fn press(app: &mut App, code: KeyCode) -> Reaction {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn every_tab_draws_at_every_size() {
    let machines = [None, Some(view(SMALL)), Some(view(DEMO)), Some(view(LARGE))];
    let sizes = [(1, 1), (24, 5), (25, 6), (30, 40), (40, 10), (80, 24), (81, 7), (132, 43), (200, 50), (400, 120)];
    for machine in machines {
        for has_machine in [false, true] {
            let mut app = app(machine.clone(), has_machine);
            for tab in Tab::ALL {
                app.tab = tab;
                for overlay in [Overlay::None, Overlay::Help, Overlay::Quit] {
                    app.overlay = overlay;
                    for (width, height) in sizes {
                        picture(&app, width, height);
                    }
                }
            }
        }
    }
}

#[test]
fn every_height_and_width_draws() {
    let app = app(Some(view(LARGE)), true);
    for size in 1..130 {
        picture(&app, size, 24);
        picture(&app, 80, size);
    }
}

#[test]
fn the_overview_looks_good() {
    insta::assert_snapshot!("overview_80x24", picture(&app(Some(view(DEMO)), false), 80, 24));
    insta::assert_snapshot!("overview_200x50", picture(&app(Some(view(DEMO)), false), 200, 50));
    insta::assert_snapshot!("run_80x24", picture(&app(Some(view(DEMO)), true), 80, 24));
    insta::assert_snapshot!("run_200x50", picture(&app(Some(view(DEMO)), true), 200, 50));
    insta::assert_snapshot!("large_80x24", picture(&app(Some(view(LARGE)), false), 80, 24));
    insta::assert_snapshot!("large_160x50", picture(&app(Some(view(LARGE)), false), 160, 50));
    insta::assert_snapshot!("waiting_80x24", picture(&app(None, true), 80, 24));
}

/// Rates need two looks: the first picture shows none, and no sum of nothing, which would be -0.
#[test]
fn the_first_picture_has_no_rates() {
    let mut app = app(Some(MachineView::new(&sample(DEMO, 61), None)), false);
    for tab in Tab::ALL {
        app.tab = tab;
        let picture = picture(&app, 200, 50);
        assert!(!picture.contains("-0"), "{picture}");
        if let Some(title) = picture.lines().find(|line| line.contains("Exits by cause")) {
            assert!(!title.contains("/s"), "{title}");
        }
    }
}

#[test]
fn the_tabs_look_good() {
    let mut app = app(Some(view(DEMO)), false);
    for tab in [Tab::Vcpus, Tab::Exits, Tab::Memory, Tab::Places, Tab::Events, Tab::Log] {
        app.tab = tab;
        insta::assert_snapshot!(format!("{}_80x24", tab.title()), picture(&app, 80, 24));
    }
    app.tab = Tab::Places;
    insta::assert_snapshot!("Places_120x40", picture(&app, 120, 40));
    app.tab = Tab::Overview;
    app.overlay = Overlay::Help;
    insta::assert_snapshot!("help_80x24", picture(&app, 80, 24));
}

fn placed(sequence: u64, vm: &str, node: u8, text: &str) -> EventView {
    let details = serde_json::json!({"action": "replicated", "pages": 16, "node": node, "reason": "readers"});
    EventView {
        event: "pages-placed",
        details,
        time_s: 55.0 + sequence as f64 / 100.0,
        ..event(sequence, vm, text, Tone::Plain)
    }
}

/// What came lately is marked where it came to, and told below; so many nodes that they do not fit are counted.
#[test]
fn places_show_what_moved() {
    let mut app = app(Some(view(DEMO)), false);
    app.tab = Tab::Places;
    assert!(picture(&app, 80, 24).contains("nothing has moved"));
    app.add_events(
        (100..103).map(|n| placed(n, "build-2", 2, "16 pages replicated to node 2: several nodes read them")),
    );
    insta::assert_snapshot!("Places_moved_80x24", picture(&app, 80, 24));
    app.set_view(view(LARGE));
    insta::assert_snapshot!("Places_large_80x24", picture(&app, 80, 24));
}

#[test]
fn rows_are_selected_and_sorted() {
    let mut app = app(Some(view(DEMO)), false);
    assert_eq!(app.selected.vm.as_deref(), Some("build-1"));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Enter), Reaction::Console("build-3".into()));
    press(&mut app, KeyCode::PageDown);
    assert_eq!(app.selected.vm.as_deref(), Some("build-4"));
    press(&mut app, KeyCode::Char('s'));
    assert_eq!(app.vm_sort.column, VmColumn::Cpu);
    assert_eq!(app.selected.vm.as_deref(), Some("build-4"));
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(app.sorted_vms().first().map(|vm| vm.name.as_str()), Some("build-4"));
}

#[test]
fn vcpus_are_selected_one_by_one() {
    let mut app = app(Some(view(DEMO)), false);
    press(&mut app, KeyCode::Char('2'));
    assert_eq!(app.tab, Tab::Vcpus);
    press(&mut app, KeyCode::Down);
    assert_eq!((app.selected.vm.as_deref(), app.selected.vcpu), (Some("build-1"), 1));
    press(&mut app, KeyCode::Down);
    assert_eq!((app.selected.vm.as_deref(), app.selected.vcpu), (Some("build-2"), 0));
    press(&mut app, KeyCode::End);
    assert_eq!(app.selected_vcpu_row(), Some(7));
}

#[test]
fn a_destroyed_vm_is_not_selected_any_more() {
    let mut app = app(Some(view(DEMO)), false);
    press(&mut app, KeyCode::End);
    app.set_view(view(Size { vms: 2, ..DEMO }));
    assert_eq!(app.selected.vm.as_deref(), Some("build-1"));
    app.set_view(view(SMALL));
    assert_eq!(app.selected.vm, None);
    assert_eq!(press(&mut app, KeyCode::Enter), Reaction::Redraw);
    press(&mut app, KeyCode::Down);
}

#[test]
fn leaving_asks_only_where_the_machine_would_end() {
    let mut top = app(Some(view(DEMO)), false);
    assert_eq!(press(&mut top, KeyCode::Char('q')), Reaction::Leave);
    let mut run = app(Some(view(DEMO)), true);
    assert_eq!(run.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Reaction::Redraw);
    assert_eq!(run.overlay, Overlay::Quit);
    assert_eq!(press(&mut run, KeyCode::Esc), Reaction::Redraw);
    assert_eq!(run.overlay, Overlay::None);
    press(&mut run, KeyCode::Char('q'));
    assert_eq!(press(&mut run, KeyCode::Char('l')), Reaction::Leave);
    press(&mut run, KeyCode::Esc);
    press(&mut run, KeyCode::Char('q'));
    assert_eq!(press(&mut run, KeyCode::Char('p')), Reaction::PowerOff);
}

#[test]
fn texts_scroll_and_the_pace_changes() {
    let mut app = app(Some(view(DEMO)), false);
    press(&mut app, KeyCode::Char('7'));
    press(&mut app, KeyCode::Up);
    assert_eq!(app.scroll_back, 1);
    press(&mut app, KeyCode::Home);
    assert_eq!(app.scroll_back, 59);
    assert!(picture(&app, 80, 24).contains("[   0]"));
    press(&mut app, KeyCode::End);
    assert!(picture(&app, 80, 24).contains("[  59]"));
    press(&mut app, KeyCode::Char('+'));
    assert_eq!(app.interval, Duration::from_millis(500));
    for _ in 0..20 {
        press(&mut app, KeyCode::Char('-'));
    }
    assert_eq!(app.interval, Duration::from_secs(10));
}

#[test]
fn memory_is_bounded() {
    let mut app = app(None, false);
    app.add_events((0..10_000).map(|n| event(n, "x", "y", Tone::Plain)));
    assert_eq!(app.events.len(), 2_000);
}
