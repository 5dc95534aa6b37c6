//! The recipe that sends alerts about fleets to a chat, in docs/operate/alerts.md: amtool checks
//! it, finds the receiver of each alert of the chart, and renders the message.

use knative_operator_tests::{recipe, tools};
use serde_json::{Value, json};

use super::{run, tool};

#[test]
fn chat_gets_the_alerts_about_fleets() {
    run(async {
        let blocks = recipe::yaml("docs/operate/alerts.md")?;
        let [config] = blocks.as_slice() else { return Err(format!("{} blocks", blocks.len()).into()) };
        let folder = tempfile::tempdir()?;
        let amtool = |arguments: &[&str]| tool("amtool", arguments, folder.path(), "").map(|(stdout, _)| stdout);
        // JSON is YAML.
        std::fs::write(folder.path().join("alertmanager.yml"), config.to_string())?;
        println!("{}", amtool(&["check-config", "alertmanager.yml"])?);

        let rules = std::fs::read_to_string(tools::project().join("charts/knative-operator/files/alerts.yaml"))?;
        let rules: Value = serde_saphyr::from_str(&rules)?;
        let names = rules["groups"][0]["rules"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|rule| rule["alert"].as_str()).collect();
        let of_fleets = names.iter().filter(|name| name.starts_with("KnativeFleet")).count();
        assert!(of_fleets >= 7 && of_fleets < names.len(), "{names:?}");
        for name in names {
            let alert = format!("alertname={name}");
            let route = ["config", "routes", "test", "--config.file=alertmanager.yml", &alert, "namespace=platform"];
            let receiver = amtool(&route)?;
            let expected = if name.starts_with("KnativeFleet") { "fleets" } else { "default" };
            assert_eq!(receiver.trim(), expected, "{name}");
        }

        let alert = |summary: &str| json!({"status": "firing", "labels": {}, "annotations": {"summary": summary, "runbook_url": "https://example.com/"}});
        let labels = json!({"namespace": "platform", "name": "knative"});
        let data = json!({"receiver": "fleets", "status": "firing", "groupLabels": labels, "commonLabels": labels,
            "commonAnnotations": {}, "alerts": [alert("one"), alert("two")]});
        std::fs::write(folder.path().join("data.json"), data.to_string())?;
        std::fs::write(folder.path().join("none.tmpl"), "")?;
        let message = &config["receivers"][1]["slack_configs"][0];
        for (field, expected) in [
            ("title", "firing: platform/knative"),
            ("text", "one (https://example.com/)\ntwo (https://example.com/)\n"),
        ] {
            let text = format!("--template.text={}", message[field].as_str().unwrap_or_default());
            let render = ["template", "render", "--template.glob=none.tmpl", "--template.data=data.json", &text];
            assert_eq!(amtool(&render)?, expected, "{field}");
        }
        // The labels by which messages are grouped are those of the metrics of a fleet.
        let grouped = &config["route"]["routes"][0]["group_by"];
        assert_eq!(grouped, &json!(["namespace", "name"]));
        Ok(())
    });
}
