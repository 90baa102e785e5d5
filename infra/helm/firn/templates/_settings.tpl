{{/* A value as TOML, on one line. */}}
{{- define "firn.toml" -}}
{{- $parts := list -}}
{{- if kindIs "map" . -}}
{{- range $name := keys . | sortAlpha -}}
{{- $value := index $ $name -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $parts = append $parts (printf "%s = %s" (toJson $name) (include "firn.toml" $value)) -}}
{{- end -}}
{{- end -}}
{ {{ join ", " $parts }} }
{{- else if kindIs "slice" . -}}
{{- range . }}{{ $parts = append $parts (include "firn.toml" .) }}{{ end -}}
[{{ join ", " $parts }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* What the chart says itself, by section, as YAML: where programs listen, and where they find each other. */}}
{{- define "firn.own_settings" -}}
{{- $settings := .Values.settings -}}
{{- $scheme := ternary "https" "http" (not (empty $settings.catalog.tls.certificate)) -}}
{{- $catalog := printf "%s://%s:%v" $scheme (include "firn.name" (dict "root" . "name" "catalog")) $settings.catalog.http.port -}}
{{- $node := include "firn.name" (dict "root" . "name" "ingest") -}}
{{- $tools := printf "http://%s:%v" (include "firn.name" (dict "root" . "name" "tools")) $settings.ingest.serve.port -}}
catalog:
  http: {host: 0.0.0.0, allowed_hosts: {{ include "firn.hosts" (dict "root" . "names" (list "catalog")) }}}
ingest:
  catalog: {uri: {{ $catalog | quote }}}
  http: {allowed_hosts: {{ include "firn.hosts" (dict "root" . "names" (list "ingest" "tools")) }}}
  node: {host: 0.0.0.0, uri: "http://{{ $node }}-0.{{ $node }}:{{ $settings.ingest.node.port }}"}
  serve: {host: 0.0.0.0}
optimize:
  catalog: {uri: {{ $catalog | quote }}}
  http: {host: 0.0.0.0, port: 8585}
  lag: {ingest_uris: [{{ $tools | quote }}]}
  spark: {jars: /opt/jars}
query:
  catalog: {uri: {{ $catalog | quote }}}
  http: {host: 0.0.0.0, allowed_hosts: {{ include "firn.hosts" (dict "root" . "names" (list "query")) }}}
  ingest: {uri: {{ $tools | quote }}}
{{- end }}

{{/* Names by which pods call a service, and each of a StatefulSet's pods, as a list in JSON: {root, names}. */}}
{{- define "firn.hosts" -}}
{{- $hosts := list -}}
{{- range .names -}}
{{- $name := include "firn.name" (dict "root" $.root "name" .) -}}
{{- $whole := printf "%s.%s.svc" $name $.root.Release.Namespace -}}
{{- $hosts = concat $hosts (list $name (printf "*.%s" $name) $whole (printf "*.%s" $whole)) -}}
{{- end -}}
{{ toJson $hosts }}
{{- end }}

{{/* firn.toml of a room: {root, room}. Its own section, and those that all rooms read. */}}
{{- define "firn.settings" -}}
{{- $own := include "firn.own_settings" .root | fromYaml -}}
{{- range $section := list "storage" "tls" .room }}
{{- $given := index $.root.Values.settings $section }}
{{- $references := index $.root.Values.secrets $section | default dict }}
{{- $added := index $own $section | default dict }}
{{ include "firn.section" (dict "path" $section "prefix" "" "given" $given "added" $added "references" $references) }}
{{- range $group := keys $given | sortAlpha }}
{{- $inner := index $given $group }}
{{- if kindIs "map" $inner }}
{{ include "firn.section" (dict "path" (printf "%s.%s" $section $group) "prefix" (printf "%s." $group) "given" $inner "added" (index $added $group | default dict) "references" $references) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* One table of it: {path, prefix, given, added, references}. To a list the chart's own is added; another
     value goes before the chart's. Tables inside of a section are sections of their own. */}}
{{- define "firn.section" -}}
[{{ .path }}]
{{- range $name := concat (keys .given) (keys .added) | uniq | sortAlpha }}
{{- $value := index $.given $name }}
{{- $added := index $.added $name }}
{{- if kindIs "slice" $added }}{{ $value = concat $added ($value | default list) }}
{{- else if kindIs "invalid" $value }}{{ $value = $added }}{{ end }}
{{- $is_group := and (kindIs "map" $value) (not $.prefix) }}
{{- if not (or (kindIs "invalid" $value) $is_group) }}
{{ $name }} = {{ include "firn.toml" $value }}
{{- end }}
{{- end }}
{{- $section := splitList "." .path | first }}
{{- range $name, $reference := .references }}
{{- $setting := trimPrefix $.prefix $name }}
{{- if and $reference (hasPrefix $.prefix $name) (not (contains "." $setting)) }}
{{ $setting }}_file = "/run/firn/{{ $section }}.{{ $name }}"
{{- end }}
{{- end }}
{{- end }}

{{/* Where the files of a room's secrets come from, as sources of a projected volume: {root, room}. */}}
{{- define "firn.secrets" -}}
{{- range $section := list "storage" "tls" .room }}
{{- range $name, $reference := index $.root.Values.secrets $section }}
{{- if $reference }}
- secret:
    name: {{ splitList "/" $reference | first }}
    items: [{key: {{ splitList "/" $reference | last }}, path: {{ $section }}.{{ $name }}}]
{{- end }}
{{- end }}
{{- end }}
{{- end }}
