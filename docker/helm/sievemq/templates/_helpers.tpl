{{/* Short, so that names of shards and numbers of pods fit behind it. */}}
{{- define "sievemq.name" -}}
{{- $name := ternary .Release.Name (printf "%s-sievemq" .Release.Name) (contains "sievemq" .Release.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 32 | trimSuffix "-" -}}
{{- end -}}

{{- define "sievemq.selector" -}}
app.kubernetes.io/name: sievemq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sievemq.labels" -}}
{{ include "sievemq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sievemq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "sievemq.replicas" -}}
{{ add (len .Values.shards) .Values.spares }}
{{- end -}}

{{/* Of the headless Service, behind which each pod has a name. */}}
{{- define "sievemq.domain" -}}
{{ include "sievemq.name" . }}-brokers.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Services of single shards, by the shard; none without the labels that they select by. */}}
{{- define "sievemq.ofShards" -}}
{{- $services := dict -}}
{{- if and .Values.roleLabels .Values.service.perShard (gt (len .Values.shards) 1) -}}
{{- range .Values.shards -}}
{{- $_ := set $services . (printf "%s-%s" (include "sievemq.name" $) .) -}}
{{- end -}}
{{- end -}}
{{- toJson $services -}}
{{- end -}}

{{/* Names under which browsers and the command line may ask a broker: its own, and those of the Services. */}}
{{- define "sievemq.hosts" -}}
{{- $hosts := list (printf "$(POD_NAME).%s" (include "sievemq.domain" .)) -}}
{{- range $service := prepend (include "sievemq.ofShards" . | fromJson | values | sortAlpha) (include "sievemq.name" .) -}}
{{- range $end := list "" ".svc" ".svc.cluster.local" -}}
{{- $hosts = append $hosts (printf "%s.%s%s" $service $.Release.Namespace $end) -}}
{{- end -}}
{{- end -}}
{{- join "," (concat $hosts .Values.httpHosts) -}}
{{- end -}}

{{- define "sievemq.scheme" -}}
{{ ternary "sievemqs" "sievemq" (ne .Values.tls.secretName "") }}
{{- end -}}

{{- define "sievemq.httpScheme" -}}
{{ ternary "https" "http" (ne .Values.tls.secretName "") }}
{{- end -}}

{{- define "sievemq.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "sievemq.name" .) }}
{{- end -}}

{{- define "sievemq.url" -}}
{{ required "database.url is required, such as postgresql://sievemq@database/sievemq" .Values.database.url }}
{{- end -}}

{{/* PGPASSWORD of a container, from the Secret with that name if the password is one of the values. */}}
{{- define "sievemq.password" -}}
{{- $secret := .secret -}}
{{- if or $secret.name .password -}}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $secret.name | default .own }}
      key: {{ ternary $secret.key "password" (ne $secret.name "") }}
{{- end -}}
{{- end -}}

{{- define "sievemq.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "sievemq.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sievemq.ports" -}}
- {name: wire, port: {{ .Values.service.port }}, targetPort: wire}
- {name: http, port: {{ .Values.service.httpPort }}, targetPort: http}
{{- end -}}
