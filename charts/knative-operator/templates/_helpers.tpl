{{/* Environment variables of traces. */}}
{{- define "knative-operator.tracing" -}}
{{- with .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ $.Values.tracing.samplingRatio | quote }}
{{- end }}
{{- end }}

{{- define "knative-operator.labels" -}}
{{- include "knative-operator.labelsWith" (list . dict) }}
{{- end }}

{{/* The labels of an object that has labels in its values, too, which precede commonLabels. */}}
{{- define "knative-operator.labelsWith" -}}
{{- $top := index . 0 }}
{{- $own := index . 1 | default dict -}}
app.kubernetes.io/name: knative-operator
app.kubernetes.io/version: {{ $top.Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ $top.Chart.Name }}-{{ $top.Chart.Version }}
{{- with merge (dict) $own ($top.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Refuses labels that the chart sets: selectors need some of them, and no label can be there
twice. */}}
{{- define "knative-operator.checkLabels" -}}
{{- $own := list "app" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/version" "helm.sh/chart" "name" "role" "sidecar.istio.io/inject" }}
{{- $given := dict "commonLabels" .Values.commonLabels }}
{{- range $part := list "knative_operator" "operator_webhook" }}
{{- $values := index $.Values.knative_operator $part }}
{{- $_ := set $given (printf "knative_operator.%s.podLabels" $part) $values.podLabels }}
{{- $_ := set $given (printf "knative_operator.%s.serviceAccount.labels" $part) ($values.serviceAccount | default dict).labels }}
{{- end }}
{{- range $path, $labels := $given }}
{{- range $name, $_ := $labels }}
{{- if or (has $name $own) (hasPrefix "rbac.authorization.k8s.io/" $name) }}
{{- fail (printf "%s has the label %s, which the chart sets itself; remove it" $path $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A definition with commonLabels. */}}
{{- define "knative-operator.definition" -}}
{{- $crd := index . 1 }}
{{- with (index . 0).Values.commonLabels }}{{- $_ := set $crd.metadata "labels" . }}{{- end }}
{{- toYaml $crd }}
{{- end }}

{{- define "knative-operator.container" -}}
securityContext:
  {{- $defaults := dict "capabilities" (dict "drop" (list "ALL")) "seccompProfile" (dict "type" "RuntimeDefault") }}
  {{- toYaml (merge (deepCopy (.containerSecurityContext | default dict)) $defaults) | nindent 2 }}
{{- with .resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The image of a part: by the digest in the values, by their tag, or by the digest in the chart of a
release, in this order. */}}
{{- define "knative-operator.image" -}}
{{- $top := index . 0 }}
{{- $part := index . 1 }}
{{- $released := index ($top.Files.Get "files/digests.json" | fromJson) $part }}
{{- with index $top.Values.knative_operator $part }}
{{- $digest := .digest | default (ternary "" $released (not (empty .tag))) }}
{{- if $digest }}
{{- printf "%s@%s" .image $digest | quote }}
{{- else }}
{{- printf "%s:%s" .image (.tag | default $top.Chart.AppVersion) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "knative-operator.pod" -}}
{{- with .securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The ServiceAccount with this name, which the RBAC and the rules of the webhook have, too. */}}
{{- define "knative-operator.serviceAccount" -}}
{{- $top := index . 0 }}
{{- $account := index . 2 | default dict -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 1 }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "knative-operator.labelsWith" (list $top $account.labels) | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# The Pods that need a token mount it.
automountServiceAccountToken: false
{{- end }}

{{/* Refuses values that name images of the Go operator. */}}
{{- define "knative-operator.checkImages" -}}
{{- $lines := list }}
{{- range $part := list "knative_operator" "operator_webhook" }}
{{- $values := index $.Values.knative_operator $part | default dict }}
{{- $go := regexMatch "(^|/)operator/cmd/(operator|webhook)(-[0-9a-f]+)?([:@]|$)" ($values.image | toString) }}
{{- if $go }}
{{- $lines = append $lines (printf "knative_operator.%s.image: %s" $part $values.image) }}
{{- end }}
{{- $own := hasPrefix "ghcr.io/knative-operator-rs/" ($values.image | toString) }}
{{- if and $values.tag (or $go (and $own (regexMatch "^v1[.][0-9]+[.][0-9]+$" ($values.tag | toString)))) }}
{{- $lines = append $lines (printf "knative_operator.%s.tag: %s" $part $values.tag) }}
{{- end }}
{{- end }}
{{- if $lines }}
{{- fail (printf "these values name images of the Go operator (knative/operator), which this chart can't run. Delete these lines from your values (and use --reset-then-reuse-values in place of --reuse-values), or name your mirror of this chart's images:\n  %s\n" (join "\n  " $lines)) }}
{{- end }}
{{- end }}

{{/* The Secret with the webhook's certificates. Each source has its own, so that a change of the
source deletes no Secret that is still used, and finds none of another owner. */}}
{{- define "knative-operator.certificateSecret" -}}
{{- $certificates := .Values.knative_operator.operator_webhook.certificates }}
{{- if eq $certificates.source "secret" }}
{{- if not $certificates.secretName }}
{{- fail "knative_operator.operator_webhook.certificates.source is secret but certificates.secretName is empty; name the Secret that holds tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- $certificates.secretName }}
{{- else if eq $certificates.source "cert-manager" }}
{{- "operator-webhook-cert-manager" }}
{{- else }}
{{- "operator-webhook-certs" }}
{{- end }}
{{- end }}

{{/* Refuses the Secret of the source self for the source secret: Helm would delete it. */}}
{{- define "knative-operator.checkCertificates" -}}
{{- $certificates := .Values.knative_operator.operator_webhook.certificates }}
{{- if and .Release.IsUpgrade (eq $certificates.source "secret") (eq ($certificates.secretName | toString) "operator-webhook-certs") }}
{{- $live := lookup "v1" "Secret" .Release.Namespace "operator-webhook-certs" | default dict }}
{{- if eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $live) .Release.Name }}
{{- fail "knative_operator.operator_webhook.certificates.secretName is operator-webhook-certs, the Secret of the source self, which this upgrade would delete; give your Secret another name" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses an upgrade that removes the controller of fleets while there are fleets: their deletion
would never end. helm template, which can't see a cluster, finds none; an install is never refused.
lookup fails for kinds that the cluster doesn't have. */}}
{{- define "knative-operator.checkFleets" -}}
{{- if and .Release.IsUpgrade (not (.Values.knative_operator.fleet | default dict).enabled) }}
{{- if lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "knativefleets.operator.knative.dev" }}
{{- with (lookup "operator.knative.dev/v1alpha1" "KnativeFleet" "" "").items }}
{{- fail (printf "knative_operator.fleet.enabled is false, but the cluster has KnativeFleets: %d. Without their controller, rollouts stop and deletions of fleets never end. Keep knative_operator.fleet.enabled=true until they are deleted: kubectl get knativefleets --all-namespaces lists them, and a deleted fleet with spec.removal.policy: Orphan leaves its resources" (len .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses a second release in another namespace: with --take-ownership, it would take permissions
and webhooks of the first, and its uninstallation would delete them. */}}
{{- define "knative-operator.checkRelease" -}}
{{- if .Release.IsInstall }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items }}
{{- $binding := .metadata.name }}
{{- if eq .roleRef.name "knative-operator" }}
{{- range .subjects | default list }}
{{- $namespace := .namespace | default "" }}
{{- if and (eq .kind "ServiceAccount") (eq .name "knative-operator") (ne $namespace $.Release.Namespace) }}
{{- if lookup "v1" "Namespace" "" $namespace }}
{{- fail (printf "the operator is installed in namespace %q of this cluster already, and serves all its namespaces: create a KnativeServing or KnativeEventing, without another release. To move the operator, uninstall that release first; Knative and its resources stay. If the release is gone: kubectl delete clusterrolebinding %s" $namespace $binding) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What an upgrade does to the versions of Knative, one line each: those that the bundle in the
operator's image lacks and keeps ("missing"), those that it upgrades ("upgrades"), those that it
can't, since more than a minor version lies between ("refused"), and those that fleets roll out
("rollouts"). Resources with their own manifests, or a bundle of one's own, are not looked at; helm
template can't see a cluster. */}}
{{- define "knative-operator.versions" -}}
{{- if and .Release.IsUpgrade (not (.Values.knative_operator.releases | default dict).image) }}
{{- $keeps := (.Values.knative_operator.releases | default dict).keepInstalled }}
{{- $fleets := list }}
{{- if and (not $keeps) (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "knativefleets.operator.knative.dev") }}
{{- $fleets = (lookup "operator.knative.dev/v1alpha1" "KnativeFleet" "" "").items | default list }}
{{- end }}
{{- range $kind, $versions := .Files.Get "files/versions.json" | fromJson }}
{{- if lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (printf "%ss.operator.knative.dev" (lower $kind)) }}
{{- $resources := (lookup "operator.knative.dev/v1beta1" $kind "" "").items | default list }}
{{- range $resources }}
{{- $installed := dig "status" "version" "" . | toString | trimPrefix "v" }}
{{- $spec := .spec | default dict }}
{{- $asked := $spec.version | default "" | toString | lower | trimPrefix "v" }}
{{- $newest := $installed }}
{{- if and (regexMatch "^[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$" $installed) (not $spec.manifests) (not .metadata.deletionTimestamp) }}
{{- /* Those of a fleet change with its rollout. */}}
{{- $isKept := not (empty $keeps) }}
{{- range .metadata.ownerReferences }}
{{- if eq .kind "KnativeFleet" }}{{- $isKept = true }}{{- end }}
{{- end }}
{{- range ternary (list) $versions $isKept }}
{{- $isAsked := or (has $asked (list "" "latest" .)) (and (regexMatch "^[0-9]+[.][0-9]+$" $asked) (hasPrefix (printf "%s." $asked) .)) }}
{{- if and $isAsked (semverCompare (printf ">%s" $newest) .) }}{{- $newest = . }}{{- end }}
{{- end }}
{{- $name := printf "%s %s/%s" $kind .metadata.namespace .metadata.name }}
{{- $isNext := le (sub (semver $newest).Minor (semver $installed).Minor) 1 }}
{{- if and (ne $newest $installed) $isNext }}
upgrades {{ $name }}: {{ $installed }} to {{ $newest }}
{{- else if ne $newest $installed }}
refused {{ $name }}: {{ $installed }} to {{ $newest }}
{{- end }}
{{- if and (not (has $installed $versions)) (or (eq $newest $installed) (not $isNext)) }}
{{- $archived := lookup "v1" "ConfigMap" $.Release.Namespace (printf "knative-operator-release-knative-%s-%s" (lower $kind | trimPrefix "knative") (lower $installed | replace "+" "-")) }}
missing {{ $name }}: {{ $installed }} ({{ ternary "archived" "not archived" (not (empty $archived)) }})
{{- end }}
{{- end }}
{{- end }}
{{- range $fleet := $fleets }}
{{- range include "knative-operator.rollouts" (list $kind $versions $resources $fleet) | splitList "\n" }}
{{- with trim . }}
{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The versions of a kind that a fleet rolls out, since it asks for none, for the latest, or for one
without a patch number; one line each. The version before is the newest one of its resources. */}}
{{- define "knative-operator.rollouts" -}}
{{- $kind := index . 0 }}
{{- $versions := index . 1 }}
{{- $resources := index . 2 }}
{{- $fleet := index . 3 }}
{{- $field := lower $kind | trimPrefix "knative" }}
{{- $spec := $fleet.spec | default dict }}
{{- $template := index $spec $field }}
{{- if and $template (not $fleet.metadata.deletionTimestamp) }}
{{- $all := list (($template.spec | default dict).version | default "latest") }}
{{- range $spec.overrides }}
{{- $patch := (index . $field | default dict).spec | default dict }}
{{- if hasKey $patch "version" }}{{- $all = append $all ($patch.version | default "latest") }}{{- end }}
{{- end }}
{{- range $all | uniq }}
{{- $asked := . | toString | lower | trimPrefix "v" }}
{{- $isLatest := eq $asked "latest" }}
{{- if or $isLatest (regexMatch "^[0-9]+[.][0-9]+$" $asked) }}
{{- $installed := "" }}
{{- range $resources }}
{{- $isOwn := false }}
{{- range .metadata.ownerReferences }}
{{- if eq .uid ($fleet.metadata.uid | default "") }}{{- $isOwn = true }}{{- end }}
{{- end }}
{{- $version := dig "status" "version" "" . | toString | trimPrefix "v" }}
{{- $isMeant := or $isLatest (hasPrefix (printf "%s." $asked) $version) }}
{{- if and $isOwn $isMeant (regexMatch "^[0-9]+[.][0-9]+[.][0-9]+$" $version) }}
{{- if semverCompare (printf ">%s" ($installed | default "0.0.0")) $version }}{{- $installed = $version }}{{- end }}
{{- end }}
{{- end }}
{{- $newest := $installed }}
{{- range ternary $versions (list) (ne $installed "") }}
{{- $isMeant := or $isLatest (hasPrefix (printf "%s." $asked) .) }}
{{- if and $isMeant (semverCompare (printf ">%s" $newest) .) }}{{- $newest = . }}{{- end }}
{{- end }}
{{- if ne $newest $installed }}
rollouts KnativeFleet {{ $fleet.metadata.namespace }}/{{ $fleet.metadata.name }}: spec.{{ $field }} {{ $installed }} to {{ $newest }}, in stages
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses an upgrade to an operator that lacks installed versions. */}}
{{- define "knative-operator.checkVersions" -}}
{{- if not (.Values.knative_operator.releases | default dict).allowMissing }}
{{- $missing := list }}
{{- range splitList "\n" (include "knative-operator.versions" .) }}
{{- if hasPrefix "missing " . }}{{- $missing = append $missing (trimPrefix "missing " .) }}{{- end }}
{{- end }}
{{- with $missing }}
{{- fail (printf "the operator of this chart lacks installed versions of Knative: %s. Before the upgrade, set spec.version, or that of the fleet, to a version that both operators have; knative-operator versions lists them. Or keep the installed versions: the operator repairs those that are archived. Then upgrade with --set knative_operator.releases.allowMissing=true, and set it to false in the next upgrade" (join ", " .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses invalid multicluster values. */}}
{{- define "knative-operator.checkMulticluster" -}}
{{- $mc := .Values.knative_operator.multicluster | default dict }}
{{- if and (.Values.knative_operator.fleet | default dict).enabled (not $mc.enabled) }}
{{- fail "knative_operator.fleet.enabled is true but knative_operator.multicluster.enabled is false; fleets install on other clusters, so enable it" }}
{{- end }}
{{- if $mc.enabled }}
{{- if not $mc.accessProvidersConfig }}
{{- fail "knative_operator.multicluster.enabled is true but knative_operator.multicluster.accessProvidersConfig is empty; list at least one provider in accessProvidersConfig.providers" }}
{{- end }}
{{- $mounts := list }}
{{- range $i, $plugin := $mc.plugins }}
{{- $path := $plugin.mountPath | toString | clean }}
{{- if not (hasPrefix "/" $path) }}
{{- fail (printf "knative_operator.multicluster.plugins[%d].mountPath must be an absolute path, got %q" $i ($plugin.mountPath | toString)) }}
{{- end }}
{{- if or (eq $path "/etc/cluster-inventory") (hasPrefix "/etc/cluster-inventory/" $path) }}
{{- fail (printf "knative_operator.multicluster.plugins[%d].mountPath must not be below /etc/cluster-inventory, which holds the provider file" $i) }}
{{- end }}
{{- $mounts = append $mounts $path }}
{{- end }}
{{- range (.Values.knative_operator.knative_operator | default dict).extraVolumeMounts }}
{{- $mounts = append $mounts (.mountPath | toString | clean) }}
{{- end }}
{{- range $provider := $mc.accessProvidersConfig.providers }}
{{- with ($provider.execConfig | default dict).command }}
{{- $command := . | toString | clean }}
{{- $found := false }}
{{- range $mounts }}
{{- if hasPrefix (printf "%s/" .) $command }}{{- $found = true }}{{- end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "provider %q: command %q is not under any plugins[].mountPath or extraVolumeMounts[].mountPath (%s); mount the program, and write its whole path" $provider.name . (join ", " $mounts | default "there is none")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" unless the value is false; a missing value is true. */}}
{{- define "knative-operator.localInstallation" -}}
{{- if ne (toString .Values.knative_operator.localInstallation) "false" }}true{{ end }}
{{- end }}

{{/* The mode of authorization. In YAML, off without quotes is false. */}}
{{- define "knative-operator.authorization" -}}
{{- $mode := .Values.knative_operator.operator_webhook.authorization }}
{{- kindIs "bool" $mode | ternary "off" ($mode | default "enforce") }}
{{- end }}

{{/* In a migration from the Go operator, nothing must be refused before the new webhook is ready. So
a match condition keeps the API server from calling it until this time, or until the webhook removes
the condition after the rollout of its Deployment. Empty if no webhook is replaced: there is none,
or its configurations have a caBundle, which only this webhook sets. helm template, which can't see a
cluster, renders none. */}}
{{- define "knative-operator.suspendedUntil" -}}
{{- if lookup "apps/v1" "Deployment" .Release.Namespace "operator-webhook" }}
{{- $trusted := false }}
{{- $until := dateInZone "2006-01-02T15:04:05Z" (now | dateModify "+15m") "UTC" }}
{{- range $kind, $name := dict "Validating" "validation.operator.knative.dev" "Mutating" "defaulting.operator.knative.dev" }}
{{- $live := lookup "admissionregistration.k8s.io/v1" (printf "%sWebhookConfiguration" $kind) "" $name | default dict }}
{{- range $live.webhooks }}
{{- if .clientConfig.caBundle }}{{- $trusted = true }}{{- end }}
{{- range .matchConditions }}
{{- /* An upgrade that is tried again doesn't begin again. */}}
{{- if eq .name "rolled-out" }}{{- $until = regexFind "[0-9-]{10}T[0-9:]{8}Z" .expression | default $until }}{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $trusted }}{{ $until }}{{- end }}
{{- end }}
{{- end }}
