//! Runs every tests/vtc/*.vtc in a real varnishd, with the VMOD that cargo built and the VCL that users get.
//!
//! `cargo test` does not build a cdylib: run `cargo build -p ghost` first (`make test` does).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "whatever goes wrong here must fail the test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::SystemTime;
use std::{env, fs, io};

/// One test for each file; `a_name_like_this` stands for `a-name-like-this.vtc`.
macro_rules! cases {
    ($($case:ident)*) => {
        const CASES: &[&str] = &[$(stringify!($case)),*];
        $(#[test] fn $case() { run(stringify!($case)); })*
    };
}

cases! {
    early_hints_of_origins_are_not_the_answer
    hints_of_misses_are_for_the_client_that_asked
    answers_have_what_the_rfc_asks_of_them
    queries_are_kept_by_their_bodies
    no_vary_search_is_obeyed_by_policy
    clients_are_obeyed_where_the_policy_says_so
    authorized_requests_share_what_the_origin_shares
    headers_are_normalized_by_policy
    the_front_invalidates_by_a_request_of_its_own
    cache_status_says_what_the_cache_did
    unsafe_methods_invalidate
    a_part_is_never_taken_for_the_whole
    age_is_read_as_the_rfc_says
    conditions_are_judged_as_the_rfc_says
    fields_of_the_first_client_are_not_shared
    fields_of_the_first_client_are_gone_after_a_304
    targeted_fields_take_the_place_of_cache_control
    the_origin_says_how_stale_where_the_policy_does_not
    what_is_stale_at_once_is_validated_each_time
    a_connection_for_another_listener_is_misdirected
    a_failed_background_fetch_keeps_the_stale_object
    a_failed_reload_keeps_the_old_configuration
    a_fetch_that_a_ban_overtakes_is_not_kept
    a_fetch_that_a_purge_overtakes_is_not_kept
    a_file_says_what_has_changed_since_its_base
    a_file_without_listeners_goes_by_sockets
    a_get_with_a_body_goes_to_the_origin_whole
    a_new_rule_takes_over_no_objects
    a_new_vcl_reads_the_file_before_it_is_used
    a_policy_that_cannot_be_read_lets_its_rule_pass
    a_policys_grace_and_keep_hold
    a_purge_finds_what_a_former_policy_kept
    a_request_that_has_been_here_before_gets_508
    a_refresh_that_breaks_off_is_not_shown
    a_refused_websocket_ends_its_connection
    a_reload_swaps_the_configuration
    a_reload_with_many_bad_entries_succeeds
    a_restart_is_routed_by_the_same_configuration
    a_retry_of_user_vcl_is_not_edited_twice
    a_retry_sends_again_what_went_to_the_origin
    a_rolled_back_request_is_routed_anew
    a_service_without_endpoints_is_covered_by_the_cache
    a_soft_purge_keeps_grace
    a_stale_object_is_served_when_its_origin_is_gone
    a_thousand_endpoints_come_and_go
    a_thousand_rules_work_and_reload
    a_tls_front_speaks_proxy_over_a_unix_socket
    a_tunnel_opens_with_101_only
    a_value_too_long_for_a_pattern_is_refused
    a_varnishd_without_a_free_thread_still_reloads
    a_websocket_to_an_unreachable_endpoint_finds_another
    a_websocket_without_backend_gets_the_answer
    an_endless_answer_evicts_nobody
    an_empty_group_answers_500_for_its_share
    answers_to_the_front_say_what_the_cache_did
    an_expression_sees_urls_as_the_cache_knows_them
    an_ingress_without_a_policy_passes_cookies
    an_origin_cannot_pretend_to_be_the_front
    invalidation_stays_in_its_namespace
    an_unreachable_endpoint_is_tried_once_more_on_another
    an_unreachable_group_gets_no_third_try
    bans_take_what_matches_and_nothing_else_gets_in
    cached_objects_are_http
    connection_cannot_take_the_framing_away
    cookies_do_not_bypass_but_the_policys_headers_do
    cors_shares_responses_and_answers_preflights
    default_ttl_is_for_silent_origins
    draining_answers_end_their_connections
    each_request_of_the_front_says_whose_it_is
    endpoints_may_be_ipv6
    endpoints_take_turns
    esi_includes_are_routed_each_by_itself
    forced_ttl_overrules_the_origin
    fields_of_other_connections_are_not_kept
    forwarded_headers_are_the_gateways_own_word
    forwarded_headers_of_trusted_proxies_are_kept
    gateway_headers_are_not_the_clients_to_send
    ghost_headers_reach_neither_origin_nor_client
    ghosts_own_answers_are_not_cached
    headers_of_other_spellings_are_not_the_clients_to_send
    hosts_match_exactly_then_by_wildcard_then_without
    hot_objects_are_marked_where_they_may_be_hot
    hot_objects_end_with_what_is_invalidated
    http2_streams_are_routed_each_by_itself
    https_listeners_are_told_apart_by_the_port_of_proxy
    key_headers_tell_objects_apart
    many_reloads_and_many_vcls
    methods_headers_and_query_parameters_match
    misses_that_need_the_front_name_rule_and_group
    no_backend_is_500_as_json_that_vcl_can_shape
    no_route_is_404_as_json_that_vcl_can_shape
    nothing_is_tried_again_once_a_byte_was_sent
    no_answer_shows_what_is_internal
    odd_ranges_get_the_whole
    odd_requests_are_answered
    one_fetch_serves_all_who_wait_and_uncacheable_ones_do_not_wait
    only_websockets_are_piped
    paths_have_one_reading
    paths_match_exactly_by_prefix_and_by_regex
    parameters_that_parsers_read_differently_stay_in_the_key
    patterns_match_any_byte
    precedence_goes_field_by_field
    purge_takes_every_variant_of_a_url
    query_parameters_that_do_not_count_make_one_object
    redirects_name_scheme_host_port_and_path
    request_headers_are_set_added_and_removed
    repeated_headers_vary_as_one
    requests_in_flight_keep_their_backend_across_a_reload
    requests_that_wait_for_one_fetch_survive_a_reload
    requests_are_counted_for_each_route
    response_headers_are_edited_on_every_delivery
    rules_with_a_policy_share_no_objects
    sockets_keep_their_routes_apart
    tags_purge_what_an_origin_tagged
    the_control_socket_obeys_its_token_alone
    the_most_specific_listener_of_a_socket_takes_the_host
    those_who_wait_for_a_slow_failure_get_the_stale_object
    timeouts_of_the_file_hold
    too_little_workspace_fails_the_request_alone
    tunnels_have_limits
    urls_are_rewritten_for_the_origin_only
    user_vcl_has_the_last_word_on_a_policy
    user_vcl_reads_what_was_decided_on_both_sides
    user_vcl_routes_again_after_a_change
    user_vcl_switches_caching_on
    variants_go_by_what_the_client_sent
    websockets_are_piped_both_ways
    weights_split_requests_between_groups
    what_a_header_or_chance_decides_is_in_the_cache_key
    what_cannot_be_indexed_is_not_kept
    what_is_for_the_cache_alone_reaches_no_client
    what_must_be_revalidated_is_not_served_stale
    what_trusted_proxies_say_is_in_the_cache_key
    what_was_invalidated_is_not_found_before_the_index_has_it
    what_was_purged_is_not_validated
    what_would_fill_the_storage_is_not_kept
    without_a_ttl_the_origin_alone_says
    x_cache_says_what_the_cache_did_unless_switched_off
}

/// Cases in which ghost has to linger, as only a debug build does.
const LINGERING: &[&str] = &["what_was_invalidated_is_not_found_before_the_index_has_it"];
/// varnishtest's exit code for a case that this machine cannot run, for example without IPv6.
const SKIPPED: i32 = 77;
const SECONDS_FOR_ONE: &str = "300";
/// varnishtest gives up where a log grows larger.
const LOG_SIZE: &str = "100M";

#[test]
fn every_file_is_a_case() {
    let mut files: Vec<_> = fs::read_dir(crate_dir().join("tests/vtc"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".vtc").expect("only .vtc files are in tests/vtc").replace('-', "_"))
        .collect();
    files.sort();
    let mut cases = CASES.to_vec();
    cases.sort_unstable();
    assert_eq!(cases, files, "the list in tests/vtc.rs and the files in tests/vtc differ");
}

fn run(case: &str) {
    if cfg!(not(debug_assertions)) && LINGERING.contains(&case) {
        return eprintln!("{case}: skipped in a release build");
    }
    let file = crate_dir().join(format!("tests/vtc/{}.vtc", case.replace('_', "-")));
    let readable = ReadableFiles::new();
    let at = |name: &str| readable.0.path().join(name).display().to_string();
    let vmods = format!("{}:{}", at(""), varnishs_own_vmods());
    let output = Command::new("varnishtest")
        .args(["-b", LOG_SIZE, "-t", SECONDS_FOR_ONE])
        .args(["-D", &format!("args=-p vmod_path={vmods} -p thread_pool_min=20 -p thread_pool_max=200")])
        .args(["-D", &format!("preamble={}", at("preamble.vcl"))])
        .args(["-D", &format!("postamble={}", at("postamble.vcl"))])
        .args(["-D", &format!("count={}", at("count.vcl"))])
        .args(["-D", &format!("page={}", at("hot.page"))])
        .arg(&file)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            panic!("varnishtest is not installed; it comes with varnishd: apt-get install varnish")
        }
        Err(e) => panic!("varnishtest does not start: {e}"),
    };
    match output.status.code() {
        Some(0) => {}
        Some(SKIPPED) => eprintln!("{case}: skipped\n{}", String::from_utf8_lossy(&output.stdout)),
        _ => {
            let log = String::from_utf8_lossy(&output.stdout);
            // Lines that say what went wrong begin so; the log is long.
            let wrong: Vec<&str> = log.lines().filter(|line| line.starts_with("----")).collect();
            panic!(
                "{}: varnishtest ended with {}\n{}\n{log}{}",
                file.display(),
                output.status,
                wrong.join("\n"),
                String::from_utf8_lossy(&output.stderr)
            )
        }
    }
}

/// What varnishd reads. Run as root it drops to its own user, who may not be able to look into the checkout.
struct ReadableFiles(tempfile::TempDir);

impl ReadableFiles {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("ghost-vtc.").tempdir().unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), everyone).unwrap();
        let vcl = crate_dir().join("../translate/src/vcl");
        let vmod = VMOD.clone().unwrap_or_else(|e| panic!("{e}"));
        for file in [vmod, vcl.join("preamble.vcl"), vcl.join("postamble.vcl"), vcl.join("count.vcl")] {
            let to = dir.path().join(file.file_name().unwrap());
            fs::copy(&file, &to).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        }
        page::Page::create(&dir.path().join("hot.page")).unwrap();
        Self(dir)
    }
}

/// Found once: who edits sources while the tests run tests what was there when they began.
static VMOD: LazyLock<Result<PathBuf, String>> = LazyLock::new(built_vmod);

/// The VMOD beside this test's own directory (`target/<profile>/deps`), not older than what it is made of.
fn built_vmod() -> Result<PathBuf, String> {
    let exe = env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).expect("a test runs in target/<profile>/deps");
    let vmod = profile.join("libvmod_ghost.so");
    let release = if profile.ends_with("release") { " --release" } else { "" };
    let how = format!("run `cargo build -p ghost{release}` first");
    let built = modified(&vmod).ok_or_else(|| format!("{} is missing: {how}", vmod.display()))?;
    // Cargo's own list, "made: source source…".
    let sources = fs::read_to_string(vmod.with_extension("d")).unwrap_or_default();
    let is_newer = |source: &&str| modified(Path::new(source)).is_none_or(|at| at > built);
    match sources.split_whitespace().skip(1).find(is_newer) {
        Some(source) => Err(format!("{} is older than {source}: {how}", vmod.display())),
        None => Ok(vmod),
    }
}

/// Where std and its like are.
fn varnishs_own_vmods() -> String {
    let asked = Command::new("pkg-config").args(["--variable=vmoddir", "varnishapi"]).output();
    let output = asked.expect("pkg-config is not installed: apt-get install pkg-config libvarnishapi-dev");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
