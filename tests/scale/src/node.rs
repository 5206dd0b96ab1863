//! A fake Node, as the kubelet of a node with containerd 2.x registers it.
use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

/// Images that a node reports; a kubelet reports up to 50.
const IMAGES: usize = 20;
/// Nodes of one rack.
const RACK: usize = 40;
/// Zones.
const ZONES: usize = 3;

/// The name of the node with this number, from 1.
pub(crate) fn name(number: usize) -> String {
    format!("fake-{number:05}")
}

/// The node with this number, Ready.
pub(crate) fn node(number: usize) -> Result<Node> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name(number), "labels": labels(number), "annotations": annotations(number)},
        "spec": {"providerID": format!("fake:///zone-{}/{}", number % ZONES, machine_id(number))},
        "status": {
            "capacity": resources("16", "65536000Ki"),
            "allocatable": resources("15890m", "61341696Ki"),
            "conditions": conditions(),
            "addresses": [{"type": "InternalIP", "address": address(number)}, {"type": "Hostname", "address": name(number)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": info(number),
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
            "runtimeHandlers": [{"name": ""}, {"name": "runc"}],
        },
    }))?)
}

fn labels(number: usize) -> Map<String, Value> {
    let zone = format!("region-1{}", ["a", "b", "c"][number % ZONES]);
    let rack = format!("rack-{}", number / RACK);
    let pairs: [(&str, String); 20] = [
        ("kubernetes.io/hostname", name(number)),
        ("kubernetes.io/os", "linux".into()),
        ("kubernetes.io/arch", "amd64".into()),
        ("beta.kubernetes.io/os", "linux".into()),
        ("beta.kubernetes.io/arch", "amd64".into()),
        ("node.kubernetes.io/instance-type", "m7.4xlarge".into()),
        ("beta.kubernetes.io/instance-type", "m7.4xlarge".into()),
        ("topology.kubernetes.io/region", "region-1".into()),
        ("topology.kubernetes.io/zone", zone.clone()),
        ("failure-domain.beta.kubernetes.io/region", "region-1".into()),
        ("failure-domain.beta.kubernetes.io/zone", zone.clone()),
        ("topology.csi.example.com/zone", zone),
        ("topology.example.com/rack", rack),
        ("pool.example.com/name", "workers".into()),
        ("pool.example.com/capacity-type", "on-demand".into()),
        ("pool.example.com/image", "linux-2026-11-03".into()),
        ("pool.example.com/launch-template", "workers-17".into()),
        ("team.example.com/owner", "platform".into()),
        ("network.example.com/cni", "bridge".into()),
        ("security.example.com/profile", "baseline".into()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

fn annotations(number: usize) -> Value {
    json!({
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid": format!("{{\"block.csi.example.com\":\"{}\"}}", machine_id(number)),
    })
}

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory, "ephemeral-storage": "209702892Ki", "hugepages-2Mi": "0", "pods": "110"})
}

fn conditions() -> Value {
    let now = jiff::Timestamp::now().to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet: {reason}"),
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
    ])
}

fn info(number: usize) -> Value {
    json!({
        "machineID": machine_id(number),
        "systemUUID": format!("ec2{number:05x}-0000-4000-8000-{number:012x}"),
        "bootID": format!("b007{number:04x}-0000-4000-8000-{number:012x}"),
        "kernelVersion": "6.12.41+deb13-amd64",
        "osImage": "Debian GNU/Linux 13 (trixie)",
        "containerRuntimeVersion": "containerd://2.2.9",
        "kubeletVersion": "v1.37.2",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    })
}

/// As /etc/machine-id. It starts with a letter: digits alone, or with an e among them, are a number to a YAML template.
fn machine_id(number: usize) -> String {
    format!("f{number:031x}")
}

fn address(number: usize) -> String {
    format!("10.128.{}.{}", number / 250, number % 250 + 1)
}

fn image(number: usize) -> Value {
    let digest = format!("{number:02x}").repeat(32);
    let repository = format!("registry.example.com/platform/component-{number}");
    json!({"names": [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{number}.0")], "sizeBytes": 41_943_040 + number})
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_node_is_another_machine_at_another_address() {
        let numbers = || 1..=15_000;
        assert_eq!(numbers().map(machine_id).collect::<HashSet<_>>().len(), 15_000);
        assert_eq!(numbers().map(address).collect::<HashSet<_>>().len(), 15_000);
        assert!(numbers().map(address).all(|address| address.parse::<std::net::Ipv4Addr>().is_ok()));
        assert_eq!(machine_id(1).len(), 32);
    }

    #[test]
    fn a_node_is_ready_runs_containerd_2_and_is_of_a_realistic_size() {
        let node = node(7).unwrap();
        let status = node.status.as_ref().unwrap();
        assert!(status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True"));
        assert!(status.node_info.as_ref().unwrap().container_runtime_version.starts_with("containerd://2."));
        assert_eq!(node.metadata.labels.as_ref().unwrap().len(), 20);
        assert!(serde_json::to_vec(&node).unwrap().len() > 6_000);
    }
}
