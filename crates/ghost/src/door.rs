//! The control socket: a unix socket that ghost opens itself and serves by threads of its own, so that a varnishd whose threads
//! are all busy still reloads and says that it lives.
//!
//! Guarantees that nothing is done for a request without the token of this start, nor for a peer that is neither root nor
//! varnishd's own user. Never holds up varnishd: connections, sizes and times are limited.

pub(crate) mod request;

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use model::names::{CONTROL_HOST, CONTROL_SOCKET_ENV, CONTROL_TOKEN_ENV, CONTROL_TOKEN_HEADER};
use serde_json::json;

use crate::answer::Said;
use crate::control::{self, Asked};
use crate::error::Error;
use crate::ffi::{self, Ctx, RawCall};
use crate::object::Ghost;
use crate::{hot, secret};
use request::Request;

/// For all of one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time: the chaperone needs three or four. More of them wait.
const MOST: usize = 16;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Door {
    /// The routers of all VCLs: VCL, and object.
    routers: Vec<(usize, usize)>,
    open: Option<Open>,
}

struct Open {
    path: PathBuf,
    /// Its end ends the thread.
    wake: UnixStream,
    thread: JoinHandle<()>,
}

static DOOR: Mutex<Option<Door>> = Mutex::new(None);

fn door() -> MutexGuard<'static, Option<Door>> {
    DOOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A router that is asked while its VCL is in use. The door is open as long as there is one.
pub(crate) struct Place(usize);

impl Place {
    /// # Safety
    /// `ghost` must live as long as the place.
    pub(crate) unsafe fn take(ctx: *const Ctx, ghost: *const Ghost) -> Result<Self, Error> {
        // SAFETY: ctx is the caller's live context.
        let vcl = unsafe { ffi::gs_vcl(ctx) } as usize;
        let mut guard = door();
        let door = guard.get_or_insert_default();
        if door.open.is_none()
            && let Some(path) = std::env::var_os(CONTROL_SOCKET_ENV)
        {
            let path = PathBuf::from(path);
            door.open = Some(open(&path).map_err(|source| Error::Control { path, source })?);
        }
        door.routers.push((vcl, ghost as usize));
        Ok(Self(ghost as usize))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guard = door();
        let Some(door) = guard.as_mut() else { return };
        door.routers.retain(|(_, ghost)| *ghost != self.0);
        if !door.routers.is_empty() {
            return;
        }
        let Some(Open { path, wake, thread }) = door.open.take() else { return };
        // Requests that are being answered look for their router.
        drop(guard);
        drop(wake);
        // No thread of ours may be left when varnishd unloads us.
        let _ = thread.join();
        let _ = std::fs::remove_file(path);
    }
}

fn open(path: &Path) -> io::Result<Open> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // A peer that connects before this is checked all the same.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let (wake, woken) = UnixStream::pair()?;
    let thread = Builder::new().name("ghost-control".into()).spawn(move || listen(&listener, &woken))?;
    Ok(Open { path: path.to_owned(), wake, thread })
}

fn listen(listener: &UnixListener, woken: &UnixStream) {
    let mut serving: Vec<JoinHandle<()>> = Vec::new();
    // SAFETY: both are open.
    while unsafe { ffi::gs_await(listener.as_raw_fd(), woken.as_raw_fd()) } == 1 {
        serving.retain(|thread| !thread.is_finished());
        // More connections wait in the backlog: a connection that is dropped would look like a ghost that is gone. No connection
        // lasts much longer than PATIENCE.
        if serving.len() >= MOST {
            std::thread::sleep(PAUSE);
            continue;
        }
        match listener.accept() {
            // SAFETY: the connection is open.
            Ok((stream, _)) if unsafe { ffi::gs_peer_is_ours(stream.as_raw_fd()) } == 1 => {
                // The stack of a reload: varnishd's own threads have little, Rust's have enough.
                let thread = Builder::new().name("ghost-answer".into()).spawn(move || {
                    let _ = serve(stream);
                });
                serving.extend(thread);
            }
            Ok(_) => {}
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    for thread in serving {
        let _ = thread.join();
    }
}

fn serve(mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let said = match read(&mut stream) {
        Ok(Some((request, file))) => crate::guard::stopped(None, || Some(answer(&request, file)))
            .unwrap_or_else(|| {
                control::said(500, None, &json!({ "error": "ghost panicked: this is a bug" }))
            }),
        Ok(None) => control::said(400, None, &json!({ "error": "this is no request that ghost reads" })),
        Err(e) => return Err(e),
    };
    let Said { status, header, body } = said;
    let mut head = format!("HTTP/1.1 {status} ghost\r\n").into_bytes();
    if let Some(mut header) = header {
        header.iter_mut().filter(|b| matches!(b, b'\r' | b'\n' | b'\0')).for_each(|b| *b = b' ');
        head.extend_from_slice(&header);
        head.extend_from_slice(b"\r\n");
    }
    let rest = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    head.extend_from_slice(rest.as_bytes());
    head.extend_from_slice(body.as_bytes());
    stream.write_all(&head)
}

/// A request, and the file that came with it. `None` where the bytes are no request, or too many.
fn read(stream: &mut UnixStream) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut bytes, mut room, mut file) = (Vec::new(), [0; 4096], None);
    loop {
        match Request::read(&bytes) {
            Ok(Some(request)) => return Ok(Some((request, file))),
            Ok(None) => {}
            Err(request::Invalid) => return Ok(None),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let (n, came) = page::receive(&*stream, &mut room)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&room[..n]);
        file = file.or(came);
    }
}

fn answer(request: &Request, file: Option<OwnedFd>) -> Said {
    let token = request.header(CONTROL_TOKEN_HEADER).unwrap_or_default();
    if !secret::is(CONTROL_TOKEN_ENV, token) || request.header("Host") != Some(CONTROL_HOST.as_bytes()) {
        return control::said(403, None, &json!({ "error": "only the chaperone of this start may ask" }));
    }
    if let Some(file) = file {
        hot::take(file);
    }
    let call = Call::begin();
    let known = door()
        .as_ref()
        .and_then(|door| door.routers.iter().find(|(vcl, _)| *vcl == call.vcl()).map(|(_, ghost)| *ghost));
    let Some(ghost) = known else {
        return control::said(503, None, &json!({ "error": "the VCL in use has no router" }));
    };
    let body = || Ok(request.body.clone());
    let asked = Asked {
        method: &request.method,
        url: &request.url,
        body: &body,
        // SAFETY: the call is live.
        ctx: unsafe { ffi::gs_call_ctx(call.0) },
        // SAFETY: as above.
        worker: unsafe { ffi::gs_call_worker(call.0) },
    };
    // SAFETY: its VCL is in use by this call, and so the object lives.
    control::answer(unsafe { &*(ghost as *const Ghost) }, &asked)
}

/// Holds the VCL that is in use now.
struct Call(*mut RawCall);

impl Call {
    fn begin() -> Self {
        // SAFETY: it takes nothing, and is given back once.
        Self(unsafe { ffi::gs_call_begin() })
    }

    fn vcl(&self) -> usize {
        // SAFETY: the call is live.
        unsafe { ffi::gs_vcl(ffi::gs_call_ctx(self.0)) as usize }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: begun once, ended once.
        unsafe { ffi::gs_call_end(self.0) };
    }
}
