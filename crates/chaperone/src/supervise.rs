//! The life of a varnishd: started, fed, watched, started again when it dies, drained and stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use front::Shutdown;
use tokio::sync::watch;
use varnishadm::{Admin, ChildState, ReverseListener, Secret};

use crate::backoff::Backoff;
use crate::event::{Event, Reporter};
use crate::feed::{Desired, Feed, LastGood};
use crate::front_side::FrontSide;
use crate::hot::Hot;
use crate::log::Readers;
use crate::reload::Control;
use crate::routes::Routes;
use crate::varnishd::{Varnishd, varnishd_dir, with_storages};
use crate::{Error, ListenSocket, Settings, directories, engine, ports, reload, storage, token};

/// The longest time from the start of varnishd to its first message on the CLI.
const STARTING: Duration = Duration::from_secs(30);
/// The longest time for the front to open its ports.
const OPENING: Duration = Duration::from_secs(2);
/// How often varnishd is polled, to find a child that died silently, or a port that has become free.
const ASK: Duration = Duration::from_secs(1);
/// For readers of varnishd's log to find it, which takes them a tenth of a second; they are looked for so often.
const FINDING_LOG: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Keeps one varnishd running and fed, and the front beside it, until `shutdown` says otherwise.
pub async fn run(
    settings: Settings,
    desired: watch::Receiver<Desired>,
    last_good: LastGood,
    reporter: Reporter,
    shutdown: watch::Receiver<Shutdown>,
) {
    let feed = Feed::new(&settings, last_good);
    let front_proof = token::generate();
    let hot = Hot::prepare(&settings);
    let front = FrontSide::start(&settings, Arc::clone(&front_proof), reporter.clone(), hot.page().cloned());
    let routes = Routes::new(Arc::clone(&front.http));
    let (drain_at, lock) = (None, None);
    Supervisor {
        settings,
        desired,
        reporter,
        shutdown,
        feed,
        front,
        hot,
        routes,
        front_proof,
        drain_at,
        lock,
    }
    .run()
    .await;
}

struct Supervisor {
    settings: Settings,
    desired: watch::Receiver<Desired>,
    reporter: Reporter,
    shutdown: watch::Receiver<Shutdown>,
    feed: Feed,
    front: FrontSide,
    hot: Hot,
    /// The front's table, where it carries HTTP.
    routes: Routes,
    /// By this ghost recognises the front's own answers.
    front_proof: Arc<str>,
    /// We were asked to stop, and keep serving until this time.
    drain_at: Option<Instant>,
    /// A lock: no other process uses the work directory as long as this is open.
    lock: Option<fs::File>,
}

/// Why a varnishd has exited.
enum End {
    Shutdown,
    Died(Error),
    CannotStart(Error),
    /// It must be restarted, because a socket that was in use before is free now.
    Restart,
}

/// A varnishd that we can talk to.
struct Running {
    varnishd: Varnishd,
    listener: ReverseListener,
    secret: Secret,
    admin: Admin,
    control: Control,
    /// Sockets that it could not open, because another process has the port.
    missing: Vec<ListenSocket>,
}

impl Supervisor {
    async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        loop {
            let (event, again_in) = match self.life().await {
                End::Shutdown => break,
                End::Restart => continue,
                End::Died(e) => {
                    let again_in = backoff.pause();
                    (Event::Died { why: e.to_string(), again_in }, again_in)
                }
                End::CannotStart(e) if e.may_be_the_arguments() && self.settings.former_args.is_some() => {
                    self.settings.extra_args = self.settings.former_args.take().unwrap_or_default();
                    let why = format!("{e}; it is started with its previous arguments");
                    self.reporter.tell(&Event::Refused { why, serving: false });
                    continue;
                }
                End::CannotStart(e) => {
                    let again_in = backoff.pause();
                    (Event::CannotStart { why: e.to_string(), again_in }, again_in)
                }
            };
            self.reporter.tell(&event);
            if !self.pause(again_in).await {
                break;
            }
        }
        self.front.stop().await;
        self.reporter.tell(&Event::Stopped);
    }

    /// Waits before varnishd is started again. If the front carries HTTP, it keeps serving in this time. False: we are asked to stop.
    async fn pause(&mut self, again_in: Duration) -> bool {
        let again = tokio::time::sleep(again_in);
        tokio::pin!(again);
        loop {
            let desired = self.desired.borrow().clone();
            if self.settings.http_in_front && desired.ghost.is_some() {
                self.front.add_backends(&desired.backends, desired.ghost.as_ref());
                self.take_routes(&desired).await;
                self.front.show(&desired.tls);
                self.reporter.shows(&desired.tls);
            }
            let mut news = self.desired.clone();
            tokio::select! {
                () = &mut again => return true,
                () = asked_to_stop(&mut self.shutdown) => return false,
                changed = news.wait_for(|now| *now != desired) => if changed.is_err() { return false },
            }
        }
    }

    /// Waits until the front has its ports, or knows that it cannot have them: what is reported as served takes connections.
    async fn await_listeners(&self, desired: &Desired) {
        let sockets = desired.front_sockets();
        let mut state = self.reporter.state();
        let known = state.wait_for(|state| {
            let is_open = |socket: &String| state.front_sockets.iter().any(|(name, _)| name == socket);
            let is_closed = |socket: &String| state.closed.iter().any(|(name, _)| name == socket);
            sockets.iter().all(|socket| is_open(socket) || is_closed(socket))
        });
        let _ = tokio::time::timeout(OPENING, known).await;
    }

    /// Brings the front's table to the configuration: by it the front carries HTTP, and in both arrangements misses of varnishd.
    async fn take_routes(&mut self, desired: &Desired) {
        if let Some(ghost) = &desired.ghost
            && let Err(why) = self.routes.take(ghost).await
        {
            tracing::error!("{}: the front keeps its former routes: {why}", self.settings.name);
        }
    }

    async fn life(&mut self) -> End {
        tokio::select! {
            biased;
            () = asked_to_stop(&mut self.shutdown) => return End::Shutdown,
            known = self.desired.wait_for(|d| d.ghost.is_some() && d.vcl.is_some()) => {
                if known.is_err() { return End::Shutdown; }
            }
        }
        let begun = Instant::now();
        let mut running = match self.start().await {
            Ok(running) => running,
            Err(e) => return End::CannotStart(e),
        };
        let end = match self.first_configuration(&mut running, begun).await {
            Ok(true) => self.serve(&mut running).await,
            Ok(false) => End::Shutdown,
            Err(e) => End::CannotStart(e),
        };
        // First: an invalidation that finds no varnishd is done.
        self.hot.end_all();
        self.front.http.cache_runs(false);
        if !self.settings.http_in_front {
            self.front.close();
        }
        self.reporter.control(None);
        running.varnishd.stop().await;
        end
    }

    /// varnishd's manager, connected; its child does not run yet.
    async fn start(&mut self) -> Result<Running, Error> {
        directories::prepare(&self.settings)?;
        if self.lock.is_none() || !lock_file(&self.settings.work_dir).exists() {
            self.lock = Some(lock(&self.settings.work_dir)?);
        }
        let (settings, missing) = self.with_free_ports()?;
        self.feed.forget();
        let secret = match &self.settings.secret {
            Some(file) => Secret::read(file)?,
            None => Secret::generate()?,
        };
        let control = Control { socket: Arc::from(settings.control_socket()), token: token::generate() };
        let listener = ReverseListener::bind(&settings.admin_address.to_string()).await?;
        let mut varnishd =
            Varnishd::spawn(&settings, &listener, &secret, &control, &self.front_proof).await?;
        let admin = tokio::select! {
            admin = listener.accept(&secret, STARTING) => admin?,
            output = varnishd.ended() => return Err(Error::Start { output }),
        };
        if self.settings.vmod.is_some() {
            let known = admin.param_show("vmod_path").await?;
            let ours = directories::vmod_dir(&self.settings.work_dir);
            admin.param_set("vmod_path", &format!("{}:{known}", ours.display())).await?;
        }
        let arguments = &self.settings.extra_args;
        let transit_buffer = storage::transit_buffer(&with_storages(arguments));
        for (name, value) in engine::optional_parameters(arguments, transit_buffer) {
            let _ = admin.param_set(name, &value).await;
        }
        self.reporter.works_in(&varnishd_dir(&settings));
        Ok(Running { varnishd, listener, secret, admin, control, missing })
    }

    /// A socket whose port is taken does not keep the others from serving.
    fn with_free_ports(&self) -> Result<(Settings, Vec<ListenSocket>), Error> {
        let (mut free, mut missing, mut why) = (Vec::new(), Vec::new(), Vec::new());
        for socket in &self.settings.sockets {
            match ports::check(socket) {
                Ok(()) => free.push(socket.clone()),
                Err(e) => {
                    missing.push(socket.clone());
                    why.push((socket.name.clone(), e));
                }
            }
        }
        let front_serves = self.desired.borrow().tls.sockets().next().is_some();
        if free.is_empty() && !why.is_empty() && !front_serves {
            return Err(why.swap_remove(0).1);
        }
        for (socket, e) in why {
            self.reporter.tell(&Event::NotListening { socket, why: e.to_string() });
        }
        Ok((Settings { sockets: free, ..self.settings.clone() }, missing))
    }

    /// Waits for a configuration that varnishd takes, and starts the child with it. False if it must stop before that.
    async fn first_configuration(&mut self, running: &mut Running, begun: Instant) -> Result<bool, Error> {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let (desired, refused) = loop {
            let desired = self.desired.borrow_and_update().clone();
            self.front.add_backends(&desired.backends, desired.ghost.as_ref());
            match self.feed.begin(&running.admin, &desired).await {
                Ok(refused) => break (desired, refused),
                Err(e) if e.keeps_serving() => {
                    self.reporter.tell(&Event::Refused { why: e.to_string(), serving: false });
                }
                Err(e) => return Err(e),
            }
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return Ok(false) },
                () = tokio::time::sleep(backoff.pause()) => {}
                () = asked_to_stop(&mut self.shutdown) => return Ok(false),
                output = running.varnishd.ended() => return Err(Error::Start { output }),
            }
        };
        start_child(running).await?;
        let mut sockets = listening(&running.admin).await?;
        sockets.sort();
        let status = match self.hot.in_use(&running.control).await {
            Ok(status) => status,
            Err(e) => return Err(panicked(&running.admin).await.unwrap_or(e)),
        };
        let took = begun.elapsed();
        let late = await_log_readers(&self.settings, self.reporter.log_readers());
        tokio::select! {
            () = late => {}
            () = asked_to_stop(&mut self.shutdown) => return Ok(false),
            output = running.varnishd.ended() => return Err(Error::Start { output }),
        }
        self.settings.former_args = None;
        self.reporter.control(Some(running.control.clone()));
        if let Some(ghost) = &desired.ghost {
            self.reporter.routes_by(ghost);
        }
        self.take_routes(&desired).await;
        self.front.http.cache_runs(true);
        self.reporter.tell(&Event::Serving { sockets });
        self.front.show(&desired.tls);
        self.reporter.shows(&desired.tls);
        if self.settings.http_in_front {
            self.await_listeners(&desired).await;
        }
        self.front.keep_backends(&desired.backends);
        let (rules, backends) = (status.rules, status.backends);
        self.reporter.tell(&Event::Reloaded { rules, backends, took });
        match refused {
            Some(e) => self.reporter.tell(&Event::Refused { why: e.to_string(), serving: true }),
            None => self.reporter.fed(desired.tag.clone(), desired.front_sockets(), desired.steps.clone()),
        }
        Ok(true)
    }

    async fn serve(&mut self, running: &mut Running) -> End {
        let child_news = running.varnishd.child_news();
        let mut child_backoff = Backoff::new(Duration::ZERO, Duration::from_secs(30));
        let mut feed_backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let fed = self.feed.is_fed(&self.desired.borrow());
        let mut retry_at = (!fed).then(|| Instant::now() + feed_backoff.pause());
        let mut ask = tokio::time::interval(ASK);
        loop {
            let retry = sleep_until(retry_at);
            let drain = sleep_until(self.drain_at);
            let check = tokio::select! {
                changed = self.desired.changed() => {
                    if changed.is_err() { return self.drain(&running.control).await; }
                    feed_backoff.reset();
                    false
                }
                () = retry => false,
                () = asked(&mut self.shutdown, self.drain_at) => {
                    let delay = self.settings.drain_delay;
                    if delay.is_zero() || *self.shutdown.borrow() == Shutdown::Now {
                        return self.drain(&running.control).await;
                    }
                    self.reporter.tell(&Event::Draining);
                    self.drain_at = Some(Instant::now() + delay);
                    continue;
                }
                () = drain => return self.drain(&running.control).await,
                output = running.varnishd.ended() => return End::Died(Error::Ended { output }),
                () = child_news.notified() => true,
                _ = ask.tick() => {
                    if let Some(socket) = running.missing.iter().find(|s| ports::check(s).is_ok()) {
                        self.reporter.tell(&Event::Restarting { socket: socket.name.clone() });
                        return match self.drain(&running.control).await {
                            End::Shutdown if *self.shutdown.borrow() == Shutdown::Run => End::Restart,
                            end => end,
                        };
                    }
                    true
                }
            };
            let done = if check {
                self.check_child(running, &mut child_backoff).await
            } else {
                let desired = self.desired.borrow_and_update().clone();
                // Before ghost uses them; the earlier ones stay as long as ghost uses them.
                self.front.add_backends(&desired.backends, desired.ghost.as_ref());
                let control = &running.control;
                let routes = self.feed.apply_routes(control, &child_news, &desired, &self.reporter).await;
                if !matches!(&routes, Err(Error::ReloadRefused { .. })) {
                    self.take_routes(&desired).await;
                }
                // A listener opens once its routes are there. A VCL may take its time, and certificates do not wait for it.
                self.front.show(&desired.tls);
                self.reporter.shows(&desired.tls);
                if routes.is_ok() {
                    self.front.keep_backends(&desired.backends);
                }
                let applied = self.apply_vcl(running, &desired).await.and(routes);
                retry_at = match &applied {
                    Ok(()) => {
                        self.reporter.tell(&Event::Recovered);
                        self.reporter.fed(
                            desired.tag.clone(),
                            desired.front_sockets(),
                            desired.steps.clone(),
                        );
                        None
                    }
                    Err(Error::ReloadInterrupted) => Some(Instant::now()),
                    Err(e) => {
                        self.reporter.tell(&Event::Refused { why: e.to_string(), serving: true });
                        Some(Instant::now() + feed_backoff.pause())
                    }
                };
                match applied {
                    Err(Error::ReloadInterrupted | Error::ReloadUnreachable { .. }) => {
                        self.check_child(running, &mut child_backoff).await
                    }
                    Err(e) if e.keeps_serving() => Ok(()),
                    other => other,
                }
            };
            let lost = match done {
                // An error of this kind does not go away by itself: varnishd is restarted.
                Err(e @ (Error::StartChild { .. } | Error::Removed { .. })) => return End::Died(e),
                Err(Error::Admin(e)) if e.is_disconnected() => true,
                Err(e) => {
                    tracing::warn!("{}: {e}", self.settings.name);
                    false
                }
                Ok(()) => running.admin.is_closed(),
            };
            if lost {
                // varnishd reconnects, or has exited.
                tokio::select! {
                    again = running.listener.accept(&running.secret, STARTING) => match again {
                        Ok(admin) => running.admin = admin,
                        Err(e) => return End::Died(e.into()),
                    },
                    output = running.varnishd.ended() => return End::Died(Error::Ended { output }),
                }
                if !self.feed.is_fed(&self.desired.borrow()) {
                    retry_at = Some(Instant::now());
                }
            }
        }
    }

    /// Nothing is hot from before another VCL is in use until its router has said by which table it decides.
    async fn apply_vcl(&mut self, running: &Running, desired: &Desired) -> Result<(), Error> {
        if !self.feed.needs_vcl(desired) {
            return Ok(());
        }
        self.hot.withdraw();
        let applied = self.feed.apply_vcl(&running.admin, desired, &self.reporter).await;
        self.hot.end_all();
        self.hot.publish(&running.control).await;
        applied
    }

    /// Starts the child again where it has died, at once the first time, then with growing pauses.
    async fn check_child(&mut self, running: &Running, backoff: &mut Backoff) -> Result<(), Error> {
        let admin = &running.admin;
        match admin.status().await? {
            ChildState::Running => {
                self.hot.publish(&running.control).await;
                return Ok(());
            }
            ChildState::Starting | ChildState::Stopping => return Ok(()),
            ChildState::Stopped | ChildState::Died => {}
        }
        self.hot.end_all();
        self.front.http.cache_runs(false);
        let panic = admin.panic_show().await.ok().flatten();
        let why =
            panic.as_deref().map_or("varnishd's child died", |p| p.lines().next().unwrap_or(p)).to_owned();
        if let Some(panic) = panic {
            tracing::error!("{}: varnishd's child panicked:\n{panic}", self.settings.name);
            let _ = admin.panic_clear().await;
        }
        let again_in = backoff.pause();
        self.reporter.tell(&Event::Died { why, again_in });
        tokio::select! {
            () = tokio::time::sleep(again_in) => {}
            () = asked(&mut self.shutdown, self.drain_at) => return Ok(()),
        }
        self.feed.restore().await?;
        start_child(running).await?;
        self.hot.publish(&running.control).await;
        self.front.http.cache_runs(true);
        self.reporter.tell(&Event::Restarted);
        Ok(())
    }

    /// Not ready from now on; requests that are being served are finished, within limits.
    async fn drain(&mut self, control: &Control) -> End {
        if *self.shutdown.borrow() == Shutdown::Now {
            return End::Shutdown;
        }
        self.reporter.tell(&Event::Draining);
        self.front.close();
        let http = Arc::clone(&self.front.http);
        http.drain(true);
        let clients = Arc::clone(&self.reporter.clients);
        let finished = async {
            // Clients that stay connected are asked to disconnect with their next response.
            let _ = reload::drain(control).await;
            while reload::status(control).await.is_ok_and(|status| status.in_flight > 0) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            while http.in_flight() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            while clients.open_streams() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = finished => {}
            () = tokio::time::sleep(self.settings.drain_timeout) => {
                tracing::warn!("{}: requests or connections still ran after {:?}", self.settings.name, self.settings.drain_timeout);
            }
            _ = self.shutdown.wait_for(|s| *s == Shutdown::Now) => {}
        }
        End::Shutdown
    }
}

/// Readers of the log must see the first request, too.
async fn await_log_readers(settings: &Settings, readers: Arc<Readers>) {
    let all = async {
        while !readers.are_there(settings.log_readers) {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(FINDING_LOG, all).await.is_err() {
        let name = &settings.name;
        tracing::warn!("{name}: a reader of varnishd's log started late, and may miss the first requests");
    }
}

/// A refusal comes without a reason; the reason is what varnishd said.
async fn start_child(running: &Running) -> Result<(), Error> {
    match running.admin.start().await {
        Err(e) if !e.is_disconnected() => {
            let (said, panic) = (running.varnishd.last_words(), panicked(&running.admin).await);
            Err(panic
                .unwrap_or(Error::StartChild { output: if said.is_empty() { e.to_string() } else { said } }))
        }
        other => Ok(other.map(drop)?),
    }
}

/// Why a child that was started has exited.
async fn panicked(admin: &Admin) -> Option<Error> {
    let panic = admin.panic_show().await.ok().flatten()?;
    let _ = admin.panic_clear().await;
    let lines: Vec<_> = panic.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect();
    Some(Error::StartChild { output: lines.join(" ") })
}

fn lock_file(work_dir: &Path) -> PathBuf {
    work_dir.join("lock")
}

/// Two varnishd in one directory would delete each other's files.
fn lock(work_dir: &Path) -> Result<fs::File, Error> {
    let path = lock_file(work_dir);
    let file = fs::File::create(&path).map_err(Error::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Taken { dir: work_dir.to_owned(), lock: path }),
        Err(fs::TryLockError::Error(e)) => Err(Error::File { path, source: e }),
    }
}

/// If the process already waits to drain, this only makes it drain now.
async fn asked(shutdown: &mut watch::Receiver<Shutdown>, drain_at: Option<Instant>) {
    match drain_at {
        None => asked_to_stop(shutdown).await,
        Some(_) => {
            if shutdown.wait_for(|s| *s == Shutdown::Now).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn asked_to_stop(shutdown: &mut watch::Receiver<Shutdown>) {
    // The sender is gone, which also asks us to stop.
    let _ = shutdown.wait_for(|s| *s > Shutdown::Run).await;
}

/// Addresses by socket name. `debug.listen_address` is how Varnish's own tests ask.
async fn listening(admin: &Admin) -> Result<Vec<(String, SocketAddr)>, Error> {
    let answer = admin.command(&["debug.listen_address"]).await?;
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, address, port) = (words.next()?, words.next()?, words.next()?);
        Some((name.to_owned(), SocketAddr::new(address.parse().ok()?, port.parse().ok()?)))
    };
    Ok(answer.body.lines().filter_map(parse).collect())
}
