{{/* The name of an object: {root, name}. */}}
{{- define "firn.name" -}}
{{ .root.Release.Name | trunc 40 | trimSuffix "-" }}-{{ .name }}
{{- end }}

{{/* Labels by which pods of one program are found: {root, name}. */}}
{{- define "firn.selector" -}}
app.kubernetes.io/name: firn
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* Labels of an object: {root, name}. */}}
{{- define "firn.labels" -}}
{{ include "firn.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* An image: {root, name}. */}}
{{- define "firn.image" -}}
{{- with .root.Values.images -}}
{{ with .registry }}{{ . | trimSuffix "/" }}/{{ end }}firn-{{ $.name }}:{{ .tag }}
{{- end -}}
{{- end }}

{{/* Whether a room's executors are pods of their own, "yes" or nothing: {root, name}. */}}
{{- define "firn.on_cluster" -}}
{{- $room := index .root.Values.settings .name -}}
{{- $is_used := or (ne .name "ingest") (eq (toString $room.engine) "spark") -}}
{{- if and $is_used (hasPrefix "k8s://" $room.spark.master) }}yes{{ end -}}
{{- end }}
