//! `metrics`: all counters for OpenMetrics collectors such as Prometheus.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use control::Name;
use export::http::{Listener, serve};
use export::metrics::{CONTENT_TYPE, Snapshot};
use machine::Client;

use super::Context;
use crate::args::Metrics;
use crate::failure::Failure;

/// A machine is asked no more often than this, however many collectors there are.
const FRESH: Duration = Duration::from_secs(1);

pub fn run(context: &Context, args: &Metrics) -> Result<(), Failure> {
    let Some(address) = args.listen else {
        let text = text(&context.connect()?)?;
        return context.output.bytes(text.as_bytes());
    };
    // The machine may come later, or go and come again; but which one is meant has to be clear now.
    if let Err(error @ Failure::Client { error: machine::ClientError::SeveralMachines { .. } }) = context.connect() {
        return Err(error);
    }
    let cannot = Failure::system("cannot listen for collectors");
    let listener = Listener::tcp(address).map_err(cannot)?;
    if let Some(address) = listener.address() {
        context.output.line(format!("metrics at http://{address}/metrics"))?;
        std::io::stdout().flush().map_err(Failure::Output)?;
    }
    let source = Arc::new(Source { machine: context.global.machine.clone(), state: Mutex::default() });
    let router = Router::new().route("/metrics", get(scrape)).with_state(source);
    serve(listener, router).map_err(Failure::system("cannot serve collectors"))
}

fn text(client: &Client) -> Result<String, Failure> {
    Snapshot::take(client)?.encode().map_err(|error| Failure::Other(format!("cannot write metrics: {error}")))
}

/// Where metrics come from.
struct Source {
    machine: Option<Name>,
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    client: Option<Client>,
    latest: Option<(Instant, String)>,
}

impl Source {
    fn text(&self) -> Result<String, Failure> {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = known.latest.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let client = match known.client.take() {
            Some(client) => client,
            None => Client::connect(self.machine.as_ref())?,
        };
        // A client whose machine has gone is not kept.
        let text = text(&client)?;
        known.client = Some(client);
        known.latest = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn scrape(State(source): State<Arc<Source>>) -> Response {
    match tokio::task::spawn_blocking(move || source.text()).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Ok(Err(failure)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{failure}\n")).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
