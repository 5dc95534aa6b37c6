//! The recipe that sends alerts about fleets to a chat, in docs/operate/alerts.md, in a
//! configuration with other routes: amtool checks it, finds the receivers of each alert of the
//! chart, and renders the message.

use knative_operator_tests::{recipe, tools};
use serde_json::{Value, json};

use super::{run, tool};

/// The configuration of a reader with the routes `first` and `last` around one of its own.
fn configuration(first: &[Value], last: &[Value], receivers: &[Value]) -> String {
    let own = [json!({"receiver": "on-call", "matchers": ["severity=\"warning\""]})];
    let others = [json!({"name": "default"}), json!({"name": "on-call"})];
    let (routes, receivers) = ([first, &own[..], last].concat(), [&others[..], receivers].concat());
    // JSON is YAML.
    json!({"route": {"receiver": "default", "routes": routes}, "receivers": receivers}).to_string()
}

#[test]
fn chat_gets_the_alerts_about_fleets() {
    run(async {
        let blocks = recipe::yaml("docs/operate/alerts.md")?;
        let lists: Vec<&[Value]> = blocks.iter().filter_map(Value::as_array).map(Vec::as_slice).collect();
        let [first, last, receivers] = lists.as_slice() else { return Err(format!("{blocks:?}").into()) };
        let folder = tempfile::tempdir()?;
        let amtool = |arguments: &[&str]| tool("amtool", arguments, folder.path(), "").map(|(stdout, _)| stdout);
        for (file, last) in [("first.yml", &[][..]), ("both.yml", *last)] {
            std::fs::write(folder.path().join(file), configuration(first, last, receivers))?;
            println!("{}", amtool(&["check-config", file])?);
        }

        let rules = std::fs::read_to_string(tools::project().join("charts/knative-operator/files/alerts.yaml"))?;
        let rules: Value = serde_saphyr::from_str(&rules)?;
        let rules = rules["groups"][0]["rules"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let alerts = rules.filter_map(|rule| Some((text(&rule["alert"])?, text(&rule["labels"]["severity"])?)));
        let alerts: Vec<(String, String)> = alerts.collect();
        let of_fleets = alerts.iter().filter(|(name, _)| name.starts_with("KnativeFleet")).count();
        assert!(of_fleets >= 7 && of_fleets < alerts.len(), "{alerts:?}");
        for (name, severity) in alerts {
            let alert = [format!("alertname={name}"), format!("severity={severity}"), "namespace=platform".to_owned()];
            // Without and with the last route.
            let expected = match (name.starts_with("KnativeFleet"), severity.as_str()) {
                (true, "warning") => ["fleets,on-call"; 2],
                (true, _) => ["fleets", "fleets,default"],
                (false, "warning") => ["on-call"; 2],
                (false, _) => ["default"; 2],
            };
            for (file, expected) in ["first.yml", "both.yml"].into_iter().zip(expected) {
                let file = format!("--config.file={file}");
                let mut route = vec!["config", "routes", "test", &file];
                route.extend(alert.iter().map(String::as_str));
                assert_eq!(amtool(&route)?.trim(), expected, "{file}: {name}");
            }
        }

        let alert = |summary: &str| json!({"status": "firing", "labels": {}, "annotations": {"summary": summary, "runbook_url": "https://example.com/"}});
        let labels = json!({"namespace": "platform", "name": "knative"});
        let data = json!({"receiver": "fleets", "status": "firing", "groupLabels": labels, "commonLabels": labels,
            "commonAnnotations": {}, "alerts": [alert("one"), alert("two")]});
        std::fs::write(folder.path().join("data.json"), data.to_string())?;
        std::fs::write(folder.path().join("none.tmpl"), "")?;
        let message = &receivers[0]["slack_configs"][0];
        for (field, expected) in [
            ("title", "firing: platform/knative"),
            ("text", "one (https://example.com/)\ntwo (https://example.com/)\n"),
        ] {
            let text = format!("--template.text={}", message[field].as_str().unwrap_or_default());
            let render = ["template", "render", "--template.glob=none.tmpl", "--template.data=data.json", &text];
            assert_eq!(amtool(&render)?, expected, "{field}");
        }
        // The labels by which messages are grouped are those of the metrics of a fleet.
        assert_eq!(first[0]["group_by"], json!(["namespace", "name"]));
        Ok(())
    });
}
