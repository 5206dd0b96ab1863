//! Edits over configurations as they are found, and over random ones.
use proptest::prelude::*;

use super::{
    edit::{Change, Config, File},
    effective::{Effective, Rejection, judge},
    release::Style,
    runtime::{Others, Runtime, Runtimes},
};
use crate::task::{OptionValue, Options};

const ROOT: &str = "/etc/containerd/config.toml";
const OURS: &str = "/etc/containerd/conf.d/kubectl-shim.toml";
/// As Debian's package for 1.6 and 1.7 brings it: no runtimes.
const DEBIAN: &str = "version = 2\n\n[plugins]\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    [plugins.\"io.containerd.grpc.v1.cri\".cni]\n      bin_dir = \"/usr/lib/cni\"\n";
/// As `containerd config default` of 1.7 prints it, much shortened, after people have set the cgroup driver.
const V1_7: &str = "version = 2\n# by hand\n[plugins]\n\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    sandbox_image = \"pause:3.8\"\n\n      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\n\n        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n          runtime_type = \"io.containerd.runc.v2\"\n\n          [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n            SystemdCgroup = true\n\n[timeouts]\n  \"io.containerd.timeout.bolt.open\" = \"0s\"\n";
/// As `containerd config default` of 2.2 prints it, much shortened.
const V2_2: &str = "version = 3\nroot = '/var/lib/containerd'\nimports = ['/etc/containerd/conf.d/*.toml']\n\n[plugins]\n  [plugins.'io.containerd.cri.v1.runtime']\n    [plugins.'io.containerd.cri.v1.runtime'.containerd]\n      default_runtime_name = 'runc'\n\n      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]\n        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n          runtime_type = 'io.containerd.runc.v2'\n\n  [plugins.'io.containerd.grpc.v1.cri']\n    disable_tcp_service = true\n";
const AKS: &str = "version = 2\noom_score = -999\n[plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"overlayfs\"\n[plugins.\"io.containerd.cri.v1.runtime\"]\n  [plugins.\"io.containerd.cri.v1.runtime\".containerd]\n    default_runtime_name = \"runc\"\n[metrics]\n  address = \"0.0.0.0:10257\"\n";
const DOCKER: &str = "#   Copyright\n\ndisabled_plugins = []\n\n#root = \"/var/lib/containerd\"\n#[grpc]\n#  address = \"/run/containerd/containerd.sock\"\n";

fn config(files: &[(&str, &str)]) -> Config {
    let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
    Config { root: ROOT.to_owned(), files: files.iter().map(file).collect(), unread: None }
}

fn runtime(shim: &str) -> Runtime {
    Runtime { runtime_type: format!("/opt/shim/{shim}/current/containerd-shim-{shim}-v1"), options: Options::new() }
}

fn runtimes(shims: &[&str]) -> Runtimes {
    shims.iter().map(|shim| (shim.parse().unwrap(), runtime(shim))).collect()
}

fn defaults() -> Others {
    let text = |value: &str| OptionValue::String(value.to_owned());
    let options = OptionValue::Table(Options::from([("SystemdCgroup".to_owned(), OptionValue::Bool(false))]));
    let runc =
        Options::from([("runtime_type".to_owned(), text("io.containerd.runc.v2")), ("options".to_owned(), options)]);
    Others::from([("runc".to_owned(), runc)])
}

fn edit(config: &Config, style: Style, shims: &[&str]) -> Vec<Change> {
    config.edit(style, &runtimes(shims), &defaults()).unwrap()
}

/// The configuration once `changes` are on disk.
fn applied(config: &Config, changes: &[Change]) -> Config {
    let mut after = config.clone();
    for change in changes {
        let known = after.files.iter().position(|file| file.path == change.path);
        let file = change.after.clone().map(|text| File { path: change.path.clone(), text });
        match (known, file) {
            (Some(at), Some(file)) => after.files[at] = file,
            (Some(at), None) => drop(after.files.remove(at)),
            (None, Some(file)) if file.path == ROOT => after.files.insert(0, file),
            (None, file) => after.files.extend(file),
        }
    }
    after
}

fn texts(changes: &[Change]) -> Vec<(&str, Option<&str>)> {
    changes.iter().map(|change| (change.path.as_str(), change.after.as_deref())).collect()
}

#[test]
fn a_2_x_node_that_imports_a_directory_gets_one_file() {
    let changes = edit(&config(&[(ROOT, V2_2)]), Style::DropIn, &["spin", "wasm"]);
    let fragment = "# Written by kubectl-shim's installer; changes are lost.\nversion = 3\n\
        [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.spin]\n  runtime_type = \"/opt/shim/spin/current/containerd-shim-spin-v1\"\n\
        [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.wasm]\n  runtime_type = \"/opt/shim/wasm/current/containerd-shim-wasm-v1\"\n";
    assert_eq!(texts(&changes), [(OURS, Some(fragment))]);
}

#[test]
fn a_2_x_node_that_imports_nothing_gets_one_line_for_our_file_alone() {
    for (root, version, table) in [
        ("version = 2\n[debug]\n", "version = 2\n", "io.containerd.grpc.v1.cri"),
        (AKS, "version = 2\n", "io.containerd.cri.v1.runtime"),
        ("version = 4\r\n", "version = 4\n", "io.containerd.cri.v1.runtime"),
        (DOCKER, "", "io.containerd.cri.v1.runtime"),
        ("", "", "io.containerd.cri.v1.runtime"),
    ] {
        let changes = edit(&config(&[(ROOT, root)]), Style::DropIn, &["spin"]);
        let line = "imports = [\"/etc/containerd/conf.d/kubectl-shim*.toml\"] # added by kubectl-shim, which removes it again\n";
        let fragment = format!(
            "# Written by kubectl-shim's installer; changes are lost.\n{version}[plugins.\"{table}\".containerd.runtimes.spin]\n  runtime_type = \"/opt/shim/spin/current/containerd-shim-spin-v1\"\n"
        );
        assert_eq!(texts(&changes), [(ROOT, Some(format!("{line}{root}").as_str())), (OURS, Some(fragment.as_str()))]);
    }
}

#[test]
fn a_node_without_a_configuration_gets_the_smallest_one() {
    let [drop_in, in_place] =
        [Style::DropIn, Style::InPlace].map(|style| edit(&config(&[]), style, &["spin"])[0].after.clone().unwrap());
    assert!(
        drop_in.ends_with("# Created by kubectl-shim, which removes this file with its last shim.\nversion = 3\n"),
        "{drop_in}"
    );
    assert!(
        in_place.starts_with(
            "# Created by kubectl-shim, which removes this file with its last shim.\nversion = 2\n# BEGIN"
        ),
        "{in_place}"
    );
}

#[test]
fn a_1_x_node_gets_a_block_at_the_end() {
    let block = "# BEGIN kubectl-shim (its installer writes and removes this block)\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin]\n  runtime_type = \"/opt/shim/spin/current/containerd-shim-spin-v1\"\n# END kubectl-shim\n";
    let changes = edit(&config(&[(ROOT, V1_7)]), Style::InPlace, &["spin"]);
    assert_eq!(texts(&changes), [(ROOT, Some(format!("{V1_7}{block}").as_str()))]);
}

#[test]
fn a_1_x_node_without_runtimes_keeps_its_default_one() {
    let changes = edit(&config(&[(ROOT, DEBIAN)]), Style::InPlace, &["spin"]);
    let after = changes[0].after.as_deref().unwrap();
    let runc = "\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  options = { SystemdCgroup = false }\n  runtime_type = \"io.containerd.runc.v2\"\n[plugins";
    assert!(after.starts_with(DEBIAN) && after.contains(runc), "{after}");
    let config = applied(&config(&[(ROOT, DEBIAN)]), &changes);
    assert_eq!(config.ours().unwrap(), runtimes(&["spin"]));
}

#[test]
fn on_1_x_the_block_goes_where_the_cri_table_comes_from() {
    let copy = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\nruntime_type = \"io.containerd.runc.v2\"\n";
    let imported = "/etc/containerd/conf.d/99-nvidia.toml";
    let other = ("/etc/containerd/conf.d/a.toml", "version = 2\noom_score = 1\n");
    for files in [[(ROOT, V1_7), (imported, copy), other], [(ROOT, V1_7), other, (imported, copy)]] {
        let changes = edit(&config(&files), Style::InPlace, &["spin"]);
        assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), [imported]);
    }
}

#[test]
fn more_and_fewer_runtimes_go_into_the_same_place() {
    for (style, root) in [(Style::DropIn, V2_2), (Style::DropIn, AKS), (Style::InPlace, V1_7), (Style::InPlace, DEBIAN)]
    {
        let start = config(&[(ROOT, root)]);
        let two = applied(&start, &edit(&start, style, &["a", "b"]));
        let one = applied(&two, &edit(&two, style, &["b"]));
        assert_eq!(one, applied(&start, &edit(&start, style, &["b"])));
        assert_eq!(edit(&one, style, &["b"]), []);
        assert_eq!(applied(&one, &one.without_ours().unwrap()), start);
    }
}

#[test]
fn a_block_from_before_an_upgrade_to_2_x_becomes_a_drop_in() {
    let start = config(&[(ROOT, V1_7)]);
    let old = applied(&start, &edit(&start, Style::InPlace, &["a"]));
    let new = applied(&old, &edit(&old, Style::DropIn, &["a"]));
    assert_eq!(new, applied(&start, &edit(&start, Style::DropIn, &["a"])));
}

#[test]
fn a_drop_in_that_is_not_read_any_more_is_read_again() {
    let start = config(&[(ROOT, "version = 2\n")]);
    let mut rewritten = applied(&start, &edit(&start, Style::DropIn, &["a"]));
    rewritten.files[0].text = "version = 2\n# anew\n".to_owned();
    rewritten.unread = rewritten.files.pop();
    assert_eq!(rewritten.ours().unwrap(), runtimes(&["a"]));
    let changes = edit(&rewritten, Style::DropIn, &["a"]);
    let checked = rewritten.check_files(Style::DropIn, &changes, "/check").unwrap();
    assert!(checked[0].text.starts_with("imports = [\"/check/1.check\"] #"), "{}", checked[0].text);
    assert_eq!(Some(&checked[1].text), rewritten.unread.as_ref().map(|file| &file.text));
    let gone = rewritten.without_ours().unwrap();
    assert_eq!(texts(&gone), [(OURS, None)]);
}

#[test]
fn a_check_sees_the_candidate_and_not_the_live_drop_in() {
    let start = config(&[(ROOT, V2_2), ("/etc/containerd/conf.d/other.toml", "version = 3\n")]);
    let live = applied(&start, &edit(&start, Style::DropIn, &["a"]));
    let checked = live.check_files(Style::DropIn, &edit(&live, Style::DropIn, &["b"]), "/check").unwrap();
    assert!(
        checked[0].text.contains("imports = [\"/etc/containerd/conf.d/other.toml\", \"/check/1.check\"]"),
        "{}",
        checked[0].text
    );
    assert!(checked[1].text.contains("runtimes.b]") && !checked[1].text.contains("runtimes.a]"));
    let clean = live.check_files(Style::DropIn, &live.without_ours().unwrap(), "/check").unwrap();
    assert!(clean[0].text.contains("imports = [\"/etc/containerd/conf.d/other.toml\"]"), "{}", clean[0].text);
    assert_eq!(clean.len(), 1);
}

fn effective(text: &str) -> Effective {
    Effective::parse(text).unwrap()
}

#[test]
fn an_edit_may_add_our_runtimes_and_nothing_else() {
    let ours = runtimes(&["spin"]);
    let spin = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.spin]\nruntime_type = '/opt/shim/spin/current/containerd-shim-spin-v1'\nsandboxer = 'podsandbox'\n";
    let verdict = |after: &str| judge(&effective(V2_2), &effective(after), &ours);
    let with = format!("{V2_2}{spin}");
    assert_eq!(verdict(&with), Ok(()));
    assert_eq!(verdict(&with.replace("imports = ['/etc", "imports = ['/run")), Ok(()));
    assert_eq!(verdict(V2_2), Err(Rejection::NotEffective("spin".parse().unwrap())));
    assert_eq!(
        verdict(&with.replace("/opt/shim", "/opt/other")),
        Err(Rejection::NotEffective("spin".parse().unwrap()))
    );
    for (from, to, path) in [
        ("tcp_service = true", "tcp_service = false", "plugins.io.containerd.grpc.v1.cri.disable_tcp_service"),
        ("root = '/var/lib/containerd'\n", "", "root"),
        ("version = 3\n", "version = 3\noom_score = 1\n", "oom_score"),
        (
            "io.containerd.runc.v2",
            "io.containerd.runc.v1",
            "plugins.io.containerd.cri.v1.runtime.containerd.runtimes.runc.runtime_type",
        ),
    ] {
        assert_eq!(verdict(&with.replace(from, to)), Err(Rejection::Changed(path.to_owned())));
    }
}

#[test]
fn the_default_runtime_must_stay() {
    let gone = V2_2.replace("name = 'runc'", "name = 'kata'");
    let verdict = judge(&effective(&gone), &effective(&gone), &Runtimes::new());
    assert_eq!(verdict, Err(Rejection::DefaultLost("kata".to_owned())));
}

#[test]
fn the_effective_configuration_tells_what_an_edit_needs_to_know() {
    let effective = effective(V1_7);
    assert!(!effective.systemd_cgroup(), "it names no default runtime");
    assert_eq!(effective.runtime("runc").unwrap().runtime_type, "io.containerd.runc.v2");
    assert_eq!(effective.handlers(), ["runc"]);
    let named = Effective::parse(&V1_7.replace(
        "[plugins]\n",
        "[plugins]\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"runc\"\n",
    ))
    .unwrap();
    assert!(named.systemd_cgroup());
    let address = |text: &str| Effective::parse(text).unwrap().address().map(str::to_owned);
    assert_eq!(address("[grpc]\naddress = '/run/a.sock'").as_deref(), Some("/run/a.sock"));
    assert_eq!(
        address("[plugins.'io.containerd.server.v1.grpc']\naddress = '/run/b.sock'").as_deref(),
        Some("/run/b.sock")
    );
    assert_eq!(address("state = '/run/containerd'"), None);
}

/// Parts of which files are put together: legal ones in any order that is legal, and line ends of both kinds.
fn any_root() -> impl Strategy<Value = String> {
    let head = prop::sample::subsequence(
        vec![
            "version = 2",
            "imports = [ ]",
            "# comment ü",
            "",
            "oom_score = -1 # imports = []",
            "disabled_plugins = ['x']",
        ],
        0..=6,
    );
    let imports = prop::sample::select(vec![
        "[]",
        "[ ]",
        "['/a/*.toml']",
        "[\n  \"/a/b.toml\", # c\n]",
        "['/etc/containerd/conf.d/*.toml',]",
        "['conf.d/*.toml']",
    ]);
    let tail = prop::sample::select(vec![
        "",
        "[plugins]",
        "[debug]\n  level = 'info'",
        DEBIAN.trim_start_matches("version = 2"),
        "[plugins.cri]\nx = 1",
    ]);
    let newline = prop::sample::select(vec!["\n", "\r\n"]);
    (head, imports, tail, newline, any::<bool>()).prop_map(|(head, imports, tail, newline, last)| {
        let text =
            [head.join("\n").replace("imports = [ ]", &format!("imports = {imports}")), tail.to_owned()].join("\n");
        (text + if last { "\n" } else { "" }).replace('\n', newline)
    })
}

fn any_options() -> impl Strategy<Value = Options> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(OptionValue::Bool),
        any::<i64>().prop_map(OptionValue::Integer),
        (-1e300..1e300).prop_map(OptionValue::Float),
        any::<String>().prop_map(OptionValue::String),
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(OptionValue::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(OptionValue::Table),
        ]
    });
    prop::collection::btree_map(any::<String>(), value, 0..4)
}

proptest! {
    #[test]
    fn every_edit_can_be_taken_out_byte_for_byte(root in any_root(), options in any_options(), in_place in any::<bool>()) {
        let style = if in_place { Style::InPlace } else { Style::DropIn };
        let start = config(&[(ROOT, &root)]);
        let mut wanted = runtimes(&["a", "b"]);
        wanted.get_mut("a").unwrap().options = options;
        let with = applied(&start, &start.edit(style, &wanted, &defaults()).unwrap());
        prop_assert_eq!(with.ours().unwrap(), wanted);
        prop_assert_eq!(applied(&with, &with.without_ours().unwrap()), start);
    }

    #[test]
    fn no_text_makes_an_edit_panic(root in any::<String>()) {
        let start = config(&[(ROOT, &root)]);
        for style in [Style::InPlace, Style::DropIn] {
            if let Ok(changes) = start.edit(style, &runtimes(&["a"]), &defaults()) {
                let with = applied(&start, &changes);
                prop_assert_eq!(applied(&with, &with.without_ours().unwrap()), start.clone());
            }
        }
    }
}
