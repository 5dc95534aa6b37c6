// What a hub without anything needs.

import { copyButton } from "./copy.js";
import { h } from "./dom.js";

const INSTALL = `kubectl create namespace knative-serving
kubectl apply -f - <<EOF
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata:
  name: knative-serving
  namespace: knative-serving
spec:
  ingress: {kourier: {enabled: true}}
  config: {network: {ingress-class: kourier.ingress.networking.knative.dev}}
EOF`;

export function emptyHub() {
  return h("section", { class: "panel empty" },
    h("h2", {}, "Nothing is installed yet"),
    h("p", {}, "This hub has no KnativeServing, KnativeEventing or KnativeFleet. Install Knative Serving on this cluster:"),
    h("div", { class: "command" }, h("pre", { tabindex: "0" }, INSTALL), copyButton(INSTALL, "Copy", "the commands")),
    h("p", {}, "This page shows the progress. To install on other clusters, register ClusterProfiles, and set ", h("code", {}, "spec.clusterProfileRef"), "."));
}
