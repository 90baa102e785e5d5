{{/* Who calls whom: programs of Firn, parts outside of the chart, and who calls it from there. `spark`: the other side
     of driver and executors. */}}
{{- define "firn.calls" -}}
{{- $root := . -}}
catalog:
  programs: [tools]
  outside: [database, storage{{ if .Values.settings.catalog.oidc.issuer }}, issuer{{ end }}]
  clients: [catalog, metrics]
ingest:
  programs: [catalog]
  outside: [kafka, registry, storage{{ if include "firn.on_cluster" (dict "root" . "name" "ingest") }}, kubernetes{{ end }}]
  clients: [metrics]
  {{- if include "firn.on_cluster" (dict "root" . "name" "ingest") }}
  spark: ingest-executor
  {{- end }}
tools: {programs: [catalog, ingest], outside: [kafka, registry, storage], clients: [metrics]}
optimize:
  programs: [catalog, tools]
  outside: [storage{{ if include "firn.on_cluster" (dict "root" . "name" "optimize") }}, kubernetes{{ end }}]
  clients: [metrics]
  {{- if include "firn.on_cluster" (dict "root" . "name" "optimize") }}
  spark: optimize-executor
  {{- end }}
query: {programs: [catalog, tools], outside: [storage, trino], clients: [query, metrics]}
ui: {programs: [query], outside: [{{ if .Values.ui.login.client_id }}issuer{{ end }}], clients: [ui]}
{{- range list "ingest" "optimize" }}
{{- if include "firn.on_cluster" (dict "root" $root "name" .) }}
{{ . }}-executor:
  {programs: [], outside: [storage{{ if eq . "ingest" }}, kafka, registry{{ end }}], clients: [], spark: {{ . }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Pods of a program as a peer: {root, name}. */}}
{{- define "firn.peer" -}}
- podSelector:
    matchLabels:
      {{- include "firn.selector" . | nindent 6 }}
{{- end }}
