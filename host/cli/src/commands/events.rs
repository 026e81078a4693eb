//! `events`: what the monitor did and why.

use std::collections::VecDeque;

use control::{ControlError, EventBatch, Followed, StreamData};
use machine::ClientError;

use super::Context;
use crate::args::Events;
use crate::failure::Failure;
use crate::model::{EventView, Names};

pub fn run(context: &Context, args: &Events) -> Result<(), Failure> {
    let client = context.connect()?;
    let timebase_hz = client.machine_info()?.timebase_hz;
    let mut printer = Printer { context, args, timebase_hz, names: Names::default() };
    let mut kept = VecDeque::new();
    let mut next = 0;
    loop {
        let batch = client.events(next)?;
        let is_last = batch.events.is_empty() || batch.next <= next;
        next = batch.next;
        printer.tell_lost(batch.lost);
        kept.extend(printer.views(&batch));
        if is_last {
            break;
        }
    }
    let surplus = args.last.map_or(0, |last| kept.len().saturating_sub(last));
    kept.drain(..surplus);
    kept.iter().try_for_each(|event| printer.print(event))?;
    if !args.follow {
        return Ok(());
    }
    let stream = match client.follow_events(next, Followed::All) {
        Ok(stream) => stream,
        Err(error) => return end(context, error),
    };
    loop {
        match stream.recv() {
            Ok(StreamData::Events(batch)) => {
                printer.tell_lost(batch.lost);
                let views = printer.views(&batch);
                views.iter().try_for_each(|event| printer.print(event))?;
            }
            Ok(_) => {}
            Err(error) => return end(context, error),
        }
    }
}

/// That the machine is switched off is how following ends, also when it does so before the stream is open.
fn end(context: &Context, error: ClientError) -> Result<(), Failure> {
    match error {
        ClientError::StreamEnded(_)
        | ClientError::Disconnected { .. }
        | ClientError::Refused(ControlError::ShuttingDown) => {
            context.say(&format!("mirrorball: {error}"));
            Ok(())
        }
        error => Err(error.into()),
    }
}

struct Printer<'a> {
    context: &'a Context,
    args: &'a Events,
    timebase_hz: u64,
    names: Names,
}

impl Printer<'_> {
    fn views(&mut self, batch: &EventBatch) -> Vec<EventView> {
        let views: Vec<EventView> =
            batch.events.iter().map(|event| EventView::new(event, self.timebase_hz, &mut self.names)).collect();
        let wanted = self.args.vm.as_ref();
        views.into_iter().filter(|view| wanted.is_none_or(|name| view.vm.as_deref() == Some(name.as_str()))).collect()
    }

    fn print(&self, event: &EventView) -> Result<(), Failure> {
        let output = &self.context.output;
        if self.args.json { output.json_line(event) } else { output.line(event.line(output.has_color())) }
    }

    fn tell_lost(&self, lost: u64) {
        if lost > 0 {
            self.context.say(&format!("mirrorball: {lost} events are no longer kept"));
        }
    }
}
