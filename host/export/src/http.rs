//! HTTP/1 with bounds: so many connections, so much time for each request, heads and bodies of so many bytes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at a time; further ones wait to be accepted.
pub const MAX_CONNECTIONS: usize = 32;
/// Bytes of a request's body at most.
pub const MAX_BODY: usize = 64 << 10;
/// Bytes of a request's head at most.
const MAX_HEAD: usize = 16 << 10;
/// How long a client may take to say what it wants.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a connection may last, with all its requests.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
/// How long nobody is accepted after an error.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Where to listen.
#[derive(Debug)]
pub enum Listener {
    /// An address of this host.
    Tcp(std::net::TcpListener),
    /// A socket that this user's processes reach.
    Unix(std::os::unix::net::UnixListener),
}

impl Listener {
    /// At an address.
    ///
    /// # Errors
    /// It is in use, or not this host's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        std::net::TcpListener::bind(address).map(Self::Tcp)
    }

    /// At a path that must not exist. Only this user can connect.
    ///
    /// # Errors
    /// Something is there, or it cannot be made.
    pub fn unix(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self::Unix(listener))
    }

    /// The address, if it has one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// Serves for ever.
///
/// # Errors
/// If serving cannot begin.
pub fn serve(listener: Listener, router: Router) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let router = router.layer(DefaultBodyLimit::max(MAX_BODY));
    runtime.block_on(async {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                let listener = TcpListener::from_std(listener)?;
                accept(&places, router, async || listener.accept().await.map(|(stream, _)| stream)).await
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                let listener = UnixListener::from_std(listener)?;
                accept(&places, router, async || listener.accept().await.map(|(stream, _)| stream)).await
            }
        }
    })
}

async fn accept<S>(places: &Arc<Semaphore>, router: Router, next: impl AsyncFn() -> io::Result<S>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return Ok(()) };
        let Ok(stream) = next().await else {
            // Most likely there are too many open files.
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD);
            // How it ends is the client's business.
            let _ = timeout(CONNECTION_TIME, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::{get, post};

    use super::*;

    fn served() -> SocketAddr {
        let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let address = listener.address().expect("it has one");
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/body", post(async |body: String| body.len().to_string()));
        std::thread::spawn(move || serve(listener, router));
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        // What was cut off has an answer, or none.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn requests_have_bounds() {
        let address = served();
        let good = ask(address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200") && good.ends_with("here"), "{good}");
        let body = "x".repeat(MAX_BODY + 1);
        let head =
            format!("POST /body HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        assert!(ask(address, &(head + &body)).starts_with("HTTP/1.1 413"));
        let long = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", "x".repeat(2 * MAX_HEAD));
        assert!(!ask(address, &long).starts_with("HTTP/1.1 200"));
        assert!(ask(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    }

    /// Who takes all places and says nothing holds up others only until there is one again.
    #[test]
    fn a_place_is_for_the_next_when_somebody_goes() {
        let address = served();
        let silent: Vec<_> = (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        let waits = std::thread::spawn(move || ask(address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
        drop(silent);
        assert!(waits.join().expect("it ends").starts_with("HTTP/1.1 200"));
    }
}
