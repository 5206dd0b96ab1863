//! Events, for `kubectl describe` and `kubectl events`.
use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::ObjectReference};
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use shim_core::{
    api::Shim,
    events::{About, Notice, Tone, notices},
    limits::WRITE_DEADLINE,
    names::MANAGER,
    plan::Action,
    world::{LeanNode, World},
};
use tokio::time::timeout;

/// Tells what was done. An Event that gets lost changes nothing.
pub(crate) struct Herald(Recorder);

impl Herald {
    pub(crate) fn new(client: &Client) -> Self {
        Self(Recorder::new(client.clone(), Reporter { controller: MANAGER.to_owned(), instance: None }))
    }

    /// Tells of a write that was accepted.
    pub(crate) async fn tell(&self, world: &World, action: &Action) {
        for notice in notices(world, action) {
            let subject = subject(world, &notice.about);
            let secondary = notice.with.as_ref().map(|with| self::subject(world, with));
            match timeout(WRITE_DEADLINE, self.0.publish(&event(notice, secondary), &subject)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("an Event was not written: {error}"),
                Err(_) => tracing::debug!("an Event was not written: no answer in time"),
            }
        }
    }
}

fn event(notice: Notice, secondary: Option<ObjectReference>) -> Event {
    let type_ = match notice.tone {
        Tone::Normal => EventType::Normal,
        Tone::Warning => EventType::Warning,
    };
    Event { type_, reason: notice.reason, note: Some(notice.message), action: "Rollout".to_owned(), secondary }
}

fn subject(world: &World, about: &About) -> ObjectReference {
    match about {
        About::Shim(name) => {
            let uid = world.shims.iter().find(|shim| shim.name == *name).map(|shim| shim.uid.clone());
            reference::<Shim>(name.as_str(), uid)
        }
        About::Revision(name) => reference::<ControllerRevision>(name, None),
        About::Node(name, uid) => reference::<LeanNode>(name.as_str(), Some(uid.clone())),
    }
}

fn reference<K: Resource<DynamicType = ()>>(name: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}
