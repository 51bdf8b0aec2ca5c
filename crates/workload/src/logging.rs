//! The sidecar that writes requests to its standard output. It reads varnishd's log in the shared memory of the work
//! directory, and so never stands in the way of a request.

use api::{Engine, LogMode};
use k8s_openapi::api::core::v1::{Container, EnvVar, ResourceRequirements, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::LOGGING_CONTAINER;
use super::deployment::{VARNISHD_DIR, VARNISHD_FOLDER, WORK_VOLUME, locked_down};
use translate::pods::{Logging, log_format, log_query};

/// For images of others. With `-j` a number that is not known is 0, and any other value is empty.
const JSON_FORMAT: &str = concat!(
    r#"{"time":"%{%Y-%m-%dT%H:%M:%S%z}t","client":"%h","method":"%m","host":"%{Host}i","url":"%U%q","#,
    r#""protocol":"%H","status":%s,"bytes":%O,"duration_us":%D,"ttfb_s":"%{Varnish:time_firstbyte}x","#,
    r#""cache":"%{Varnish:hitmiss}x","handling":"%{Varnish:handling}x","listener":"%{X-Gateway-Listener}i","#,
    r#""route":"%{X-Gateway-Route}i","referer":"%{Referer}i","user_agent":"%{User-agent}i"}"#
);

const OUR_MASK: [&str; 2] = ["-p", "vsl_mask=+Timestamp,+ReqAcct"];

/// What the program needs to find in the log beyond the tags that varnishd writes by default here.
pub(super) fn varnishd_arguments(logging: &Logging) -> Vec<&'static str> {
    match logging.mode {
        LogMode::Varnishlog => vec!["-p", "vsl_mask=default"],
        // ghost says the rest.
        LogMode::Json => OUR_MASK.to_vec(),
        LogMode::VarnishlogJson if logging.is_ours() => OUR_MASK.to_vec(),
        // Whether it was a hit, too.
        LogMode::VarnishlogJson | LogMode::Varnishncsa => {
            vec!["-p", "vsl_mask=+Timestamp,+ReqAcct,+VCL_call,+VCL_return"]
        }
    }
}

pub(super) fn sidecar(logging: &Logging, engine: Engine, image: &str) -> Container {
    Container {
        name: LOGGING_CONTAINER.to_owned(),
        image: Some(logging.image.clone().unwrap_or_else(|| image.to_owned())),
        command: Some(command(logging, engine)),
        // varnishd is in another container, where its process cannot be seen.
        env: Some(vec![EnvVar {
            name: "VSM_NOPID".to_owned(),
            value: Some("1".to_owned()),
            ..EnvVar::default()
        }]),
        // A sidecar: it starts before varnishd and ends after it, so that nothing of the draining is lost.
        restart_policy: Some("Always".to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu", "5m"), ("memory", "16Mi")]
                    .map(|(name, text)| (name.to_owned(), Quantity(text.to_owned())))
                    .into(),
            ),
            ..ResourceRequirements::default()
        }),
        security_context: Some(locked_down()),
        volume_mounts: Some(vec![VolumeMount {
            // varnishd's directory alone: nothing else of the work directory is the sidecar's business.
            name: WORK_VOLUME.to_owned(),
            mount_path: VARNISHD_DIR.to_owned(),
            sub_path: Some(VARNISHD_FOLDER.to_owned()),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

/// The engine's own names. Only Debian's Vinyl Cache has the old ones, too; an image of the user's own may not.
fn programs(engine: Engine) -> (&'static str, &'static str) {
    match engine {
        Engine::Varnish7 => ("varnishlog", "varnishncsa"),
        Engine::Vinyl9 => ("vinyllog", "vinylncsa"),
    }
}

fn command(logging: &Logging, engine: Engine) -> Vec<String> {
    let (log, ncsa) = programs(engine);
    let of_engine = |format: &str| log_format(format, engine == Engine::Vinyl9);
    let mut command: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
    match logging.mode {
        LogMode::Varnishlog => add(&[log]),
        LogMode::Json | LogMode::VarnishlogJson if logging.is_ours() => {
            add(&["varnish-gateway", "access-log", "--varnishd-dir", VARNISHD_DIR]);
            if let Some(query) = &logging.query {
                add(&["--vsl-query", query]);
            }
            if logging.query_strings {
                add(&["--log-query-strings"]);
            }
            if !logging.extra_args.is_empty() {
                add(&["--"]);
                command.extend(logging.extra_args.iter().cloned());
            }
            return command;
        }
        LogMode::Json | LogMode::VarnishlogJson => {
            let given = logging.format.as_deref().unwrap_or(JSON_FORMAT);
            add(&[ncsa, "-j", "-F", &of_engine(given)]);
        }
        LogMode::Varnishncsa => {
            add(&[ncsa]);
            if let Some(format) = &logging.format {
                add(&["-F", &of_engine(format)]);
            }
        }
    }
    // `-t off`: wait for varnishd as long as it takes.
    add(&["-n", VARNISHD_DIR, "-t", "off"]);
    add(&["-q", &log_query(logging.query.as_deref())]);
    command.extend(logging.extra_args.iter().cloned());
    command
}
