//! `check`: what would become of every object.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use resolve::EndpointIndex;
use source::files::Files;
use translate::vcl;
use translate::{GatewayPlan, Key};

use crate::cli::{CheckArguments, Varnish};
use crate::compile_vcl::{Compiled, compile, refused_arguments};
use crate::input::{self, Input};
use crate::{shared_ports, static_addresses, verdict};

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let Input { files, mut translation, snapshot, problems } = input::read(&arguments.files)?;
    let mut to = io::stdout().lock();
    let mut bad = 0_usize;
    for problem in &problems {
        bad += usize::from(problem.is_error());
        writeln!(to, "{} {problem}", mark(!problem.is_error()))?;
    }
    for verdict in verdict::from_statuses(&translation.statuses) {
        bad += usize::from(!verdict.good);
        writeln!(to, "{} {}: {}", mark(verdict.good), verdict.object, verdict.text)?;
    }
    let endpoints = input::endpoints(&snapshot);
    let mut notices = translation.notices.clone();
    for (key, plan) in &translation.gateways {
        let endpoints = with_names(plan, &endpoints);
        notices.extend(input::ghost(plan, &endpoints).1);
        notices.extend(resolve::resolve_tls(&plan.routing, &endpoints).1);
        let arrangement = plan.routing.arrangement();
        writeln!(to, "note: Gateway {key}: data path {} ({})", arrangement.name(), arrangement.why())?;
        bad += usize::from(!check_vcl(&mut to, key, plan, &arguments.varnish)?);
    }
    let vcls = translation.gateways.values().filter_map(|plan| plan.main_vcl.as_deref());
    for note in vcls.flat_map(|main_vcl| other_engines(main_vcl, &files)).collect::<BTreeSet<_>>() {
        writeln!(to, "note: {}", note.text)?;
    }
    for (at, notice) in notices.iter().enumerate() {
        if !notices[..at].contains(notice) {
            writeln!(to, "note: {notice}")?;
        }
    }
    // In a cluster each has an address of its own.
    for conflict in shared_ports::settle(&snapshot, &mut translation.gateways, |_, _| false).conflicts {
        writeln!(to, "note: on one machine: {conflict}")?;
    }
    for notice in static_addresses::notices(&snapshot, translation.gateways.keys()) {
        writeln!(to, "note: on one machine: {notice}")?;
    }
    if translation.gateways.is_empty() {
        bad += 1;
        let controller = model::names::CONTROLLER_NAME;
        writeln!(
            to,
            "{} no Gateway of a GatewayClass with controllerName {controller} was found",
            mark(false)
        )?;
    }
    match bad {
        0 => writeln!(to, "No problems found.")?,
        1 => writeln!(to, "1 problem.")?,
        n => writeln!(to, "{n} problems.")?,
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Names of Services are not looked up here: what runs may see others than this machine.
fn with_names(plan: &GatewayPlan, endpoints: &EndpointIndex) -> EndpointIndex {
    let external = plan.routing.external_names.iter().flat_map(|external| &external.services);
    let slices: Vec<_> =
        external.map(|(service, name)| resolve::external_slice(service, name, None)).collect();
    endpoints.clone().replacing(&slices)
}

fn mark(good: bool) -> &'static str {
    if good { "ok:" } else { "problem:" }
}

/// Ordered by place.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EngineNote {
    place: String,
    line: usize,
    text: String,
}

/// What engines do not read alike in user VCL. The one that is installed has compiled it; these notes are for the day on which another
/// one has to.
fn other_engines(main_vcl: &str, files: &Files) -> Vec<EngineNote> {
    let Some(user) = vcl::user_part(main_vcl) else { return Vec::new() };
    let (object, key) = user.origin.split_once(',').unwrap_or((user.origin, ""));
    let file = files.file_of(object).map(|file| format!(" in {}", file.display())).unwrap_or_default();
    let place = format!("{object}{file},{key}");
    let note = |found: &vcl::engines::Finding<'_>| EngineNote {
        place: place.clone(),
        line: found.line,
        text: format!("{place}, {found}"),
    };
    vcl::engines::differences(user.text).iter().map(note).collect()
}

fn check_vcl(to: &mut impl Write, key: &Key, plan: &GatewayPlan, varnish: &Varnish) -> anyhow::Result<bool> {
    // Why there is none stands among the Gateway's verdicts.
    let Some(vcl) = &plan.main_vcl else { return Ok(true) };
    let arguments = plan.infra.as_ref().map_or(&[][..], |infra| &infra.varnishd_args);
    if let Some(why) = refused_arguments(varnish, arguments)? {
        writeln!(
            to,
            "{} Gateway {key}: varnishd refuses its arguments (varnishdExtraArgs, storage): {why}",
            mark(false)
        )?;
        return Ok(false);
    }
    Ok(match compile(varnish, vcl)? {
        Compiled::Yes => {
            writeln!(to, "{} Gateway {key}: the VCL compiles", mark(true))?;
            true
        }
        Compiled::NotTried => {
            writeln!(
                to,
                "note: Gateway {key}: the VCL was not compiled, as varnishd is not installed (apt-get install varnish)"
            )?;
            true
        }
        Compiled::No(message) => {
            writeln!(to, "{} Gateway {key}: the VCL does not compile:\n{message}", mark(false))?;
            false
        }
    })
}
