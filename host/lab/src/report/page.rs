//! Reports as files: JSON, table and charts of one experiment; a page in Markdown of all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::table::{notes, number, peer, target, verdict};
use super::{Figure, Report};
use crate::LabError;
use crate::plot::Chart;
use crate::store::write_whole;

/// Writes `NAME.json`, `NAME.txt` and the charts as SVG and PNG into a folder; gives their names.
///
/// # Errors
/// [`LabError::Io`] or [`LabError::Plot`].
pub fn write(report: &Report, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let name = &report.name;
    let mut written = Vec::new();
    for (file, text) in [(format!("{name}.json"), report.to_json()), (format!("{name}.txt"), report.to_string())] {
        let path = folder.join(file);
        write_whole(&path, text.as_bytes())?;
        written.push(path);
    }
    for chart in report.charts.iter().filter(|chart| !chart.is_empty()) {
        for (path, content) in [
            (folder.join(file_name(report, chart, "svg")), chart.svg()?.into_bytes()),
            (folder.join(file_name(report, chart, "png")), chart.png()?),
        ] {
            write_whole(&path, &content)?;
            written.push(path);
        }
    }
    Ok(written)
}

fn file_name(report: &Report, chart: &Chart, kind: &str) -> String {
    format!("{}-{}.{kind}", report.name, chart.id)
}

/// One page of all: tables, gaps, and the charts that [`write`] has put beside it.
#[must_use]
pub fn page(reports: &[(Report, Vec<String>)]) -> String {
    let mut text = String::from("# Results of the lab\n");
    for (report, gaps) in reports {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {} ({})\n", report.name, report.size.label());
        if report.figures.iter().all(|figure| figure.value.is_none()) {
            let _ = write!(text, "\nNothing measured yet: run `mirrorball bench {}`.\n", command(report));
        } else {
            let _ = write!(text, "\n{}, commit {}.\n\n", report.machine, report.commit);
            tables(&mut text, report);
        }
        if !gaps.is_empty() {
            let _ = write!(text, "\nNot in here (`mirrorball bench {}` measures it):\n\n", command(report));
            gaps.iter().for_each(|gap| text.push_str(&format!("- {gap}\n")));
        }
        for chart in report.charts.iter().filter(|chart| !chart.is_empty()) {
            let _ = write!(text, "\n![{}]({})\n", chart.title, file_name(report, chart, "png"));
        }
    }
    let apart = |figure: &Figure| figure.peer.is_some() && !figure.peer_in_this_run;
    if reports.iter().any(|(report, _)| report.figures.iter().any(apart)) {
        text.push_str("\n\\* Linux KVM on the same emulated machine, measured apart: see docs/claims.md.\n");
    }
    text
}

fn command(report: &Report) -> String {
    match report.size {
        crate::plan::Size::Quick => format!("{} --quick", report.name),
        crate::plan::Size::Full => report.name.clone(),
    }
}

fn tables(text: &mut String, report: &Report) {
    let (goals, parts): (Vec<_>, Vec<_>) = report.figures.iter().partition(|figure| figure.goal.is_some());
    if !goals.is_empty() {
        text.push_str("| figure | value | target | KVM | paper | unit | | what |\n|---|--:|--:|--:|--:|---|---|---|\n");
    }
    for figure in goals {
        let cells = [
            format!("`{}`", figure.id),
            number(figure.value),
            target(figure),
            peer(figure).replace('*', "\\*"),
            number(figure.paper),
            figure.unit.clone(),
            verdict(figure).to_owned(),
            notes(figure).replace('|', "\\|"),
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if parts.is_empty() {
        return;
    }
    text.push_str(
        "\n<details><summary>breakdown</summary>\n\n| part | value | unit | samples | |\n|---|--:|---|--:|---|\n",
    );
    for figure in parts {
        let (value, notes) = (number(figure.value), notes(figure).replace('|', "\\|"));
        let _ = writeln!(text, "| `{}` | {value} | {} | {} | {notes} |", figure.id, figure.unit, figure.samples);
    }
    text.push_str("\n</details>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Size;
    use crate::plot::{Chart, Drawing, Series};
    use crate::report::{AtMost, Goal, Goals};

    const GOALS: Goals<'static> = Goals(&[Goal::new("a", "ratio", AtMost(1.0), "a | b").peer(2.0)]);

    fn report(figures: Vec<Figure>) -> Report {
        let lines = Series { name: "ours".into(), points: vec![(1.0, 1.0), (2.0, 4.0)] };
        let drawing = Drawing::Lines { x: "harts".into(), y: "ms".into(), logarithmic: false, series: vec![lines] };
        let empty = Drawing::Lines { x: String::new(), y: String::new(), logarithmic: false, series: Vec::new() };
        let chart = |id: &str, drawing| Chart { id: id.into(), title: "growth".into(), drawing };
        let charts = vec![chart("growth", drawing), chart("nothing", empty)];
        let (name, machine, commit) = ("x".into(), "virt".into(), "0".into());
        Report { name, machine, commit, figures, size: Size::Full, failures: Vec::new(), measured_at: None, charts }
    }

    #[test]
    fn the_page_has_what_is_measured_and_what_is_not() {
        let figures = vec![GOALS.figure("a", 0.9, "", 1), GOALS.figure("part", 5.0, "ns", 1)];
        let all = [
            (report(figures), vec!["t: refused, it was measured with another monitor image".to_owned()]),
            (report(Vec::new()), Vec::new()),
        ];
        let page = page(&all);
        for part in
            ["| `a` | 0.9000 | 1 | 2\\* |", "a \\| b", "refused", "x-growth.png", "Nothing measured yet", "apart"]
        {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains("x-nothing"));
    }

    #[test]
    fn all_files_are_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let written = write(&report(vec![GOALS.figure("a", 0.9, "", 1)]), &dir.path().join("out")).expect("room");
        let names: Vec<_> = written.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["x.json", "x.txt", "x-growth.svg", "x-growth.png"]);
        assert!(written.iter().all(|path| path.metadata().is_ok_and(|data| data.len() > 0)));
    }
}
