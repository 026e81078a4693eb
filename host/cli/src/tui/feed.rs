//! Asks the machine, in threads of their own, so that keys are never slow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use control::{Followed, StreamData};
use machine::{Client, ClientError};

use crate::failure::Failure;
use crate::model::{EventView, MachineView, Names, Sample};

/// Something new.
#[derive(Debug)]
pub enum News {
    /// Another look at the machine.
    View(Box<MachineView>),
    /// New events.
    Events(Vec<EventView>),
    /// The machine answers no more; why.
    Lost(String),
}

/// Threads that ask. They end with it.
#[derive(Debug)]
pub struct Feed {
    news: Receiver<News>,
    pace: Arc<Pace>,
}

/// How often to ask, and whether to go on.
#[derive(Debug)]
struct Pace {
    interval_ms: AtomicU64,
    is_over: AtomicBool,
    /// Notified when the interval has changed or it is over.
    changed: Condvar,
    /// Only for `changed`: the values are atomics.
    lock: Mutex<()>,
}

impl Feed {
    /// Begins to ask.
    pub fn start(client: &Client, interval: Duration) -> Result<Self, Failure> {
        let (sender, news) = channel();
        let pace = Arc::new(Pace {
            interval_ms: AtomicU64::new(millis(interval)),
            is_over: AtomicBool::new(false),
            changed: Condvar::new(),
            lock: Mutex::new(()),
        });
        let (asker, events_client) = (client.clone(), client.clone());
        let (views, events) = (sender.clone(), sender);
        let asker_pace = Arc::clone(&pace);
        let events_pace = Arc::clone(&pace);
        spawn("views", move || {
            if let Err(error) = send_views(&asker, &views, &asker_pace) {
                let _ = views.send(News::Lost(error.to_string()));
            }
        })?;
        spawn("events", move || {
            // Its end tells the other thread's story a second time.
            let _ = send_events(&events_client, &events, &events_pace);
        })?;
        Ok(Self { news, pace })
    }

    /// What came since the last call.
    pub fn news(&self) -> impl Iterator<Item = News> + '_ {
        self.news.try_iter()
    }

    /// Asks this often from now on.
    pub fn set_interval(&self, interval: Duration) {
        if self.pace.interval_ms.swap(millis(interval), Ordering::SeqCst) != millis(interval) {
            self.pace.changed.notify_all();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.pace.is_over.store(true, Ordering::SeqCst);
        self.pace.changed.notify_all();
    }
}

impl Pace {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Waits for the next look.
    fn wait(&self) {
        let interval = Duration::from_millis(self.interval_ms.load(Ordering::SeqCst));
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over() {
            // Woken early means: look at once, with the new interval.
            drop(self.changed.wait_timeout(guard, interval));
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(Failure::system("cannot make a thread"))
}

fn send_views(client: &Client, news: &Sender<News>, pace: &Pace) -> Result<(), ClientError> {
    let info = client.machine_info()?;
    let mut before: Option<Sample> = None;
    while !pace.is_over() {
        let sample = Sample::collect_with(client, info.clone())?;
        let view = MachineView::new(&sample, before.as_ref());
        if news.send(News::View(Box::new(view))).is_err() {
            break;
        }
        let is_first = before.replace(sample).is_none();
        // Rates need two looks: the second comes soon.
        if is_first { thread::sleep(Duration::from_millis(200)) } else { pace.wait() }
    }
    Ok(())
}

fn send_events(client: &Client, news: &Sender<News>, pace: &Pace) -> Result<(), ClientError> {
    let timebase_hz = client.machine_info()?.timebase_hz;
    let stream = client.follow_events(0, Followed::All)?;
    let mut names = Names::default();
    while !pace.is_over() {
        // The time-out is there to notice the end.
        if let Some(StreamData::Events(batch)) = stream.recv_timeout(Duration::from_millis(500))? {
            let events = batch.events.iter().map(|event| EventView::new(event, timebase_hz, &mut names)).collect();
            if news.send(News::Events(events)).is_err() {
                break;
            }
        }
    }
    Ok(())
}

fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}
