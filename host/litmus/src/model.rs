//! RVWMO, by going through all executions of a small test.
//!
//! An execution is: what each thread does, which write each read reads from, and an order of the writes to each location (*co*). It is
//! allowed if (RISC-V Unprivileged ISA, "RVWMO Memory Consistency Model", in the form of its "Formal Axiomatic Specification in Herd"):
//! - each location by itself is consistent: program order to it, reads-from, co and from-read have no circle;
//! - preserved program order, reads-from between threads, co and from-read have no circle;
//! - between the read and the write of a pair of LR and SC, no other thread's write comes.
//!
//! An AMO is one access that reads and writes, as in the manual's text.

use std::collections::BTreeSet;

use crate::test::{Observable, Test};
use crate::trace::{Access, Sort, Trace, all};

/// An access, and where it is. The first ones are the initial writes.
#[derive(Clone, Copy, Debug)]
struct Event {
    thread: usize,
    /// Its number in its thread.
    number: usize,
    access: Access,
}

const INITIAL: usize = usize::MAX;

/// Pairs of events: for each the set of those behind it.
type Relation = Vec<u64>;

/// Every end that RVWMO allows: values of [`Test::observables`]. Nothing if the test is too large or uses an address that is none.
#[must_use]
pub fn allowed(test: &Test) -> Option<BTreeSet<Vec<u64>>> {
    let values = values(test)?;
    let threads: Vec<Vec<Trace>> = test
        .threads
        .iter()
        .zip(&test.registers)
        .map(|(code, first)| all(code, first, &values))
        .collect::<Option<_>>()?;
    let mut ends = BTreeSet::new();
    let mut picks = vec![0; threads.len()];
    loop {
        let traces: Vec<&Trace> = threads.iter().zip(&picks).map(|(all, pick)| &all[*pick]).collect();
        Candidate::new(test, &traces)?.go(&mut ends);
        let Some(at) = (0..picks.len()).find(|at| picks[*at] + 1 < threads[*at].len()) else { return Some(ends) };
        picks[..at].fill(0);
        picks[at] += 1;
    }
}

/// All values that a location may ever have.
fn values(test: &Test) -> Option<Vec<u64>> {
    let mut values: BTreeSet<u64> = test.values.iter().copied().collect();
    // Values that come from values: four rounds are enough for chains of all threads, and adding goes on for ever.
    for _ in 0..4 {
        let known: Vec<u64> = values.iter().copied().collect();
        for (code, first) in test.threads.iter().zip(&test.registers) {
            for trace in all(code, first, &known)? {
                values.extend(trace.accesses.iter().filter_map(|access| access.write));
            }
        }
        if values.len() > 8 {
            break;
        }
    }
    Some(values.into_iter().take(8).collect())
}

struct Candidate<'a> {
    test: &'a Test,
    traces: &'a [&'a Trace],
    events: Vec<Event>,
    /// Preserved program order as far as it does not depend on what is read from where.
    fixed: Relation,
}

impl<'a> Candidate<'a> {
    fn new(test: &'a Test, traces: &'a [&'a Trace]) -> Option<Self> {
        let none = crate::test::Order::default();
        let initial = |(location, value): (usize, &u64)| {
            let access = Access {
                location,
                read: None,
                write: Some(*value),
                order: none,
                sort: Sort::Plain,
                address: 0,
                data: 0,
                control: 0,
                pair: None,
            };
            Event { thread: INITIAL, number: location, access }
        };
        let mut events: Vec<Event> = test.values.iter().enumerate().map(initial).collect();
        for (thread, trace) in traces.iter().enumerate() {
            let own = trace.accesses.iter().enumerate();
            events.extend(own.map(|(number, access)| Event { thread, number, access: *access }));
        }
        if events.len() > 64 || events.iter().any(|event| event.access.location >= test.values.len()) {
            return None;
        }
        let mut candidate = Self { test, traces, fixed: vec![0; events.len()], events };
        candidate.fixed = candidate.relation(|a, b| candidate.is_preserved(a, b));
        Some(candidate)
    }

    fn relation(&self, holds: impl Fn(usize, usize) -> bool) -> Relation {
        let count = self.events.len();
        (0..count).map(|a| (0..count).filter(|b| a != *b && holds(a, *b)).fold(0, |set, b| set | 1 << b)).collect()
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.events[a], &self.events[b]);
        a.thread == b.thread && a.thread != INITIAL && a.number < b.number
    }

    fn is_same_place(&self, a: usize, b: usize) -> bool {
        self.events[a].access.location == self.events[b].access.location
    }

    /// Rules 1 and 4 to 11 and 13 of the manual.
    fn is_preserved(&self, a: usize, b: usize) -> bool {
        if !self.is_before(a, b) {
            return false;
        }
        let (first, second) = (&self.events[a], &self.events[b]);
        let (x, y) = (&first.access, &second.access);
        let is_from = |set: u32| set >> first.number & 1 == 1;
        let has_annotation = |access: &Access| access.order.acquire || access.order.release;
        let overlapping = self.is_same_place(a, b) && y.write.is_some();
        let annotated = x.order.acquire || y.order.release || has_annotation(x) && has_annotation(y);
        let dependent = is_from(y.address) || is_from(y.data) || is_from(y.control) && y.write.is_some();
        let through_address = y.write.is_some()
            && (0..self.events.len())
                .any(|m| self.is_before(a, m) && self.is_before(m, b) && is_from(self.events[m].access.address));
        overlapping
            || annotated
            || dependent
            || through_address
            || y.pair == Some(first.number)
            || self.is_fenced(first, second)
    }

    fn is_fenced(&self, first: &Event, second: &Event) -> bool {
        let (x, y) = (&first.access, &second.access);
        self.traces[first.thread].fences.iter().any(|(at, fence)| {
            let is_between = first.number < *at && second.number >= *at;
            let before = fence.before_reads && x.read.is_some() || fence.before_writes && x.write.is_some();
            let after = fence.after_reads && y.read.is_some() || fence.after_writes && y.write.is_some();
            // Under fence.tso a write comes before writes only.
            let is_exempt = fence.is_tso && x.read.is_none() && y.write.is_none();
            is_between && before && after && !is_exempt
        })
    }

    /// Goes through what reads read from and the orders of writes.
    fn go(&self, ends: &mut BTreeSet<Vec<u64>>) {
        let readers: Vec<usize> = (0..self.events.len()).filter(|at| self.events[*at].access.read.is_some()).collect();
        let sources: Vec<Vec<usize>> = readers.iter().map(|reader| self.sources(*reader)).collect();
        if sources.iter().any(Vec::is_empty) {
            return;
        }
        let orders: Vec<Vec<Vec<usize>>> = (0..self.test.values.len()).map(|location| self.orders(location)).collect();
        for_each_pick(&orders.iter().map(Vec::len).collect::<Vec<_>>(), |picks| {
            let order: Vec<&[usize]> = orders.iter().zip(picks).map(|(all, pick)| all[*pick].as_slice()).collect();
            let end = self.end(&order);
            if ends.contains(&end) {
                return;
            }
            let mut is_allowed = false;
            for_each_pick(&sources.iter().map(Vec::len).collect::<Vec<_>>(), |picks| {
                if !is_allowed {
                    let from: Vec<(usize, usize)> = readers
                        .iter()
                        .zip(&sources)
                        .zip(picks)
                        .map(|((reader, all), pick)| (all[*pick], *reader))
                        .collect();
                    is_allowed = self.holds(&from, &order);
                }
            });
            if is_allowed {
                ends.insert(end);
            }
        });
    }

    fn sources(&self, reader: usize) -> Vec<usize> {
        let value = self.events[reader].access.read;
        let is_source =
            |at: &usize| *at != reader && self.is_same_place(*at, reader) && self.events[*at].access.write == value;
        (0..self.events.len()).filter(is_source).collect()
    }

    /// All orders of the writes to a location, the initial one first.
    fn orders(&self, location: usize) -> Vec<Vec<usize>> {
        let is_write = |at: &usize| {
            let event = &self.events[*at];
            event.thread != INITIAL && event.access.location == location && event.access.write.is_some()
        };
        let writes: Vec<usize> = (0..self.events.len()).filter(is_write).collect();
        let mut orders = vec![vec![location]];
        for write in writes {
            let longer = orders.iter().flat_map(|order| {
                (1..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, write);
                    order
                })
            });
            orders = longer.collect();
        }
        orders
    }

    fn end(&self, order: &[&[usize]]) -> Vec<u64> {
        let of = |observable: Observable| match observable {
            Observable::Register(thread, register) => self.traces[thread].registers[register],
            Observable::Location(location) => {
                let last = order[location].last().expect("the initial write is there");
                self.events[*last].access.write.unwrap_or(0)
            }
        };
        self.test.observables().into_iter().map(of).collect()
    }

    fn holds(&self, from: &[(usize, usize)], order: &[&[usize]]) -> bool {
        let count = self.events.len();
        let (mut local, mut global) =
            (self.relation(|a, b| self.is_before(a, b) && self.is_same_place(a, b)), self.fixed.clone());
        let mut add = |a: usize, b: usize, is_global: bool| {
            local[a] |= 1 << b;
            global[a] |= if is_global { 1 << b } else { 0 };
        };
        for writes in order {
            for (at, write) in writes.iter().enumerate() {
                writes[at + 1..].iter().for_each(|later| add(*write, *later, true));
            }
        }
        for (write, reader) in from {
            let is_external = self.events[*write].thread != self.events[*reader].thread;
            add(*write, *reader, is_external);
            let writes = order[self.events[*write].access.location];
            let at = writes.iter().position(|other| other == write).unwrap_or(count);
            for later in writes.iter().skip(at + 1).filter(|later| *later != reader) {
                add(*reader, *later, true);
            }
        }
        self.by_sources(from, &mut global);
        is_acyclic(local) && is_acyclic(global) && self.are_pairs_whole(from, order)
    }

    /// Rules 2, 3 and 12, which depend on what is read from where.
    fn by_sources(&self, from: &[(usize, usize)], global: &mut Relation) {
        let source = |reader: usize| from.iter().find(|(_, to)| *to == reader).map(|(write, _)| *write);
        for (write, reader) in from.iter().filter(|(write, reader)| self.is_before(*write, *reader)) {
            let access = &self.events[*write].access;
            if access.sort != Sort::Plain {
                global[*write] |= 1 << reader;
            }
            for a in (0..self.events.len()).filter(|a| self.is_before(*a, *write)) {
                if (access.address | access.data) >> self.events[a].number & 1 == 1 {
                    global[a] |= 1 << reader;
                }
            }
        }
        for (_, a) in from {
            for (_, b) in from.iter().filter(|(_, b)| self.is_before(*a, *b) && self.is_same_place(*a, *b)) {
                let is_written = (0..self.events.len()).any(|m| {
                    self.is_before(*a, m)
                        && self.is_before(m, *b)
                        && self.is_same_place(*a, m)
                        && self.events[m].access.write.is_some()
                });
                let is_plain = self.events[*b].access.write.is_none();
                if !is_written && is_plain && source(*a) != source(*b) {
                    global[*a] |= 1 << b;
                }
            }
        }
    }

    fn are_pairs_whole(&self, from: &[(usize, usize)], order: &[&[usize]]) -> bool {
        self.events.iter().enumerate().all(|(sc, event)| {
            let Some(pair) = event.access.pair.filter(|_| event.access.sort == Sort::Conditional) else { return true };
            let lr = self.events.iter().position(|other| other.thread == event.thread && other.number == pair);
            let source = from.iter().find(|(_, reader)| Some(*reader) == lr).map(|(write, _)| *write);
            let writes = order[event.access.location];
            let place = |of: usize| writes.iter().position(|write| *write == of);
            let (Some(first), Some(last)) = (source.and_then(place), place(sc)) else { return false };
            first < last && writes[first + 1..last].iter().all(|write| self.events[*write].thread == event.thread)
        })
    }
}

fn for_each_pick(counts: &[usize], mut act: impl FnMut(&[usize])) {
    let mut picks = vec![0; counts.len()];
    loop {
        act(&picks);
        let Some(at) = (0..picks.len()).find(|at| picks[*at] + 1 < counts[*at]) else { return };
        picks[..at].fill(0);
        picks[at] += 1;
    }
}

fn is_acyclic(mut reach: Relation) -> bool {
    for middle in 0..reach.len() {
        for from in 0..reach.len() {
            if reach[from] >> middle & 1 == 1 {
                reach[from] |= reach[middle];
            }
        }
    }
    reach.iter().enumerate().all(|(at, behind)| behind >> at & 1 == 0)
}
