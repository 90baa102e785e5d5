{{/* All programs as YAML: image, arguments, port, paths of probes, memory in MiB. */}}
{{- define "firn.programs" -}}
{{- $settings := .Values.settings -}}
{{- $is_spark := eq (toString $settings.ingest.engine) "spark" -}}
catalog:
  {image: catalog, room: catalog, arguments: [serve], port: {{ $settings.catalog.http.port }}, ready: /readyz, alive: /healthz,
   scheme: {{ ternary "HTTPS" "HTTP" (not (empty $settings.catalog.tls.certificate)) }}, grace_s: 30}
ingest:
  {image: {{ ternary "ingest-spark" "ingest" $is_spark }}, room: ingest, arguments: [run], port: {{ $settings.ingest.node.port }}, ready: /readyz, alive: /healthz,
   grace_s: {{ add 20 (ceil $settings.ingest.shutdown_s | int) }}}
tools:
  {image: ingest, room: ingest, arguments: [serve], port: {{ $settings.ingest.serve.port }}, ready: /readyz, alive: /healthz, grace_s: 30}
optimize:
  {image: optimize, room: optimize, arguments: [run], port: {{ $settings.optimize.http.port | default 8585 }}, ready: /metrics, alive: /metrics, grace_s: 60}
query:
  {image: query, room: query, arguments: [serve], port: {{ $settings.query.http.port }}, ready: /readyz, alive: /healthz, grace_s: 30}
ui:
  {image: ui, room: "", arguments: [serve, --host, 0.0.0.0], port: 8501, ready: /_stcore/health, alive: /_stcore/health, grace_s: 30}
{{- end }}

{{/* Memory of a pod in MiB: what its settings say that it may hold, and what its processes take without: {root, name}. */}}
{{- define "firn.memory" -}}
{{- $settings := .root.Values.settings -}}
{{- $mib := 1048576 -}}
{{- $given := (index .root.Values.programs .name).memory_mib -}}
{{- if not (kindIs "invalid" $given) -}}
{{ int $given }}
{{- else if eq .name "catalog" -}}
{{- /* Each worker has a cache of its own, and commits in the air. */ -}}
{{ mul (int $settings.catalog.workers) (add 384 (div (int64 $settings.catalog.metadata_cache_bytes_max) $mib)) }}
{{- else if and (eq .name "ingest") (eq (toString $settings.ingest.engine) "spark") -}}
{{ add 1024 (int $settings.ingest.spark.driver_memory_mb) (include "firn.tasks" (dict "root" .root "name" "ingest")) }}
{{- else if eq .name "ingest" -}}
{{- /* docs/ingest.md, "Memory, and many tables": the budget and 640 MiB with one worker. */ -}}
{{ add (div (int64 $settings.ingest.flush.buffer_bytes_max) $mib) 640 (mul 320 (sub (int $settings.ingest.workers) 1)) }}
{{- else if eq .name "tools" -}}
{{ add 384 (mul 64 (int $settings.ingest.serve.tails_max)) }}
{{- else if eq .name "optimize" -}}
{{ add 1024 (int $settings.optimize.spark.driver_memory_mb) (include "firn.tasks" (dict "root" .root "name" "optimize")) }}
{{- else if eq .name "query" -}}
{{ add 768 (div (int64 $settings.query.embedded.memory_bytes) $mib) (mul 128 (int $settings.query.sql.readers)) }}
{{- else -}}
512
{{- end -}}
{{- end }}

{{/* Memory in MiB of the tasks that run in the driver's own pod, 2 GiB each; none where executors are pods: {root, name}. */}}
{{- define "firn.tasks" -}}
{{- if include "firn.on_cluster" . -}}
0
{{- else -}}
{{- $master := (index .root.Values.settings .name).spark.master -}}
{{ mul 2048 (regexFind "[0-9]+" $master | default "0" | int) }}
{{- end -}}
{{- end }}

{{/* Options of Spark whose executors are pods, as JSON: {root, name}. What the settings say goes before them. */}}
{{- define "firn.spark_options" -}}
{{- $executors := index .root.Values.executors .name -}}
{{- $image := ternary "ingest-spark" "optimize" (eq .name "ingest") -}}
{{- $options := dict
  "spark.kubernetes.namespace" .root.Release.Namespace
  "spark.kubernetes.container.image" (include "firn.image" (dict "root" .root "name" $image))
  "spark.kubernetes.container.image.pullPolicy" .root.Values.images.pull
  "spark.kubernetes.authenticate.serviceAccountName" (include "firn.name" .)
  "spark.kubernetes.executor.podTemplateFile" "/etc/firn/executor.yaml"
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.executor.instances" (toString $executors.count)
  "spark.executor.cores" (toString $executors.cores)
  "spark.executor.memory" (printf "%vm" $executors.heap_mib)
  "spark.kubernetes.executor.memoryOverhead" (printf "%vm" $executors.overhead_mib)
  "spark.default.parallelism" (mul (int $executors.count) (int $executors.cores) | toString)
-}}
{{- with .root.Values.images.secrets }}{{ $_ := set $options "spark.kubernetes.container.image.pullSecrets" (join "," .) }}{{ end -}}
{{ mergeOverwrite $options (index .root.Values.settings .name).spark.options | toJson }}
{{- end }}
