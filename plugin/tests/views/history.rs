//! `history`, in two widths.
use insta::assert_snapshot;
use kubectl_shim::views::{self, Columns};
use shim_core::{
    api::{RevisionStatus, Shim, ShimStatus},
    revision::{Fate, RevisionView},
};

use crate::fixture::{Cluster, on_record, screen};

fn shim() -> Shim {
    let mut cluster = Cluster::default();
    let shim = cluster.shim("spin-v2", "v0.23.1", 86_400 * 41);
    shim.status = Some(ShimStatus {
        revision: Some(RevisionStatus { number: 8, version: "v0.23.1".into() }),
        nodes: 13,
        nodes_updated: 2,
        nodes_skipped: 1,
        ..ShimStatus::default()
    });
    shim.clone()
}

fn revisions() -> Vec<RevisionView> {
    let mut same = on_record(6, "v0.22.0", 86_400 * 9, Some((Fate::Complete, 12, 12, 358)));
    same.inputs.binary = Some("containerd-shim-spin-v2".into());
    same.author = "kustomize-controller".into();
    vec![
        on_record(8, "v0.23.1", 95, None),
        on_record(7, "v0.23.0", 3_600, Some((Fate::Failed, 5, 12, 89))),
        same,
        on_record(5, "v0.22.0", 86_400 * 9 + 600, Some((Fate::Superseded, 3, 12, 600))),
        on_record(1, "v0.1.0", 86_400 * 400, Some((Fate::Complete, 2, 2, 30))),
    ]
}

#[test]
fn all_revisions() {
    let (revisions, shim) = (revisions(), shim());
    let entries = views::entries(&revisions, &shim);
    assert_snapshot!("history-80", views::history(&entries, Columns::Narrow, &screen(Some(80))));
    assert_snapshot!("history-120", views::history(&entries, Columns::Narrow, &screen(Some(120))));
    let whole = views::history(&entries, Columns::Narrow, &screen(None));
    assert_eq!(views::history(&entries, Columns::Wide, &screen(None)), whole);
    let longest = |width: usize| {
        let text = views::history(&entries, Columns::Narrow, &screen(Some(width)));
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    assert!(longest(80) <= 80 && longest(120) <= 120);
}

#[test]
fn one_revision() {
    let (revisions, shim) = (revisions(), shim());
    let entries = views::entries(&revisions, &shim);
    let inputs = "version: v0.23.0\nfetchStrategy:\n  anonHttp: …\n";
    assert_snapshot!("revision-failed", views::revision(&entries[1], inputs, &screen(Some(80))));
    assert_snapshot!("revision-first", views::revision(&entries[4], inputs, &screen(Some(80))));
}

#[test]
fn history_for_programs() {
    let (revisions, shim) = (revisions(), shim());
    let entries = views::entries(&revisions, &shim);
    let list = serde_json::to_value(views::revision_list(&entries)).unwrap();
    assert_eq!(list["kind"], "ShimRevisionList");
    assert_snapshot!("json-revision", serde_json::to_string_pretty(&list["items"][1]).unwrap());
    let newest = &list["items"][0];
    assert_eq!(
        (&newest["result"], &newest["nodes"], &newest["nodesUpdated"]),
        (&"Progressing".into(), &12.into(), &2.into())
    );
    assert!(newest.get("ended").is_none());
}
