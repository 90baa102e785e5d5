{{/* A container's powers: none. */}}
{{- define "firn.powerless" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A pod's user, as the images have it. */}}
{{- define "firn.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A probe: {path, port, scheme, by_tls}. A server that asks clients for certificates is asked for a connection. */}}
{{- define "firn.probe" -}}
{{- if .asks_certificate -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ .scheme | default "HTTP" }}}
{{- end -}}
{{- end }}

{{/* The template of a program's pods: {root, name, program}. */}}
{{- define "firn.pod" -}}
{{- $values := index .root.Values.programs .name -}}
{{- $room := .program.room -}}
{{- $on_cluster := and (has .name (list "ingest" "optimize")) (include "firn.on_cluster" .) -}}
{{- $asks := and (eq .name "catalog") (not (empty .root.Values.settings.catalog.tls.client_ca)) -}}
metadata:
  labels:
    {{- include "firn.labels" . | nindent 4 }}
  {{- if $room }}
  annotations:
    firn/settings: {{ include "firn.settings" (dict "root" .root "room" $room) | sha256sum }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .program.port | quote }}
  {{- end }}
spec:
  serviceAccountName: {{ include "firn.name" . }}
  automountServiceAccountToken: {{ not (empty $on_cluster) }}
  terminationGracePeriodSeconds: {{ .program.grace_s }}
  securityContext:
    {{- include "firn.user" . | nindent 4 }}
  {{- with .root.Values.images.secrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if not (hasKey $values.pod "affinity") }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "firn.selector" . | nindent 16 }}
  {{- end }}
  {{- with $values.pod }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "firn.image" (dict "root" .root "name" .program.image) }}
      imagePullPolicy: {{ .root.Values.images.pull }}
      args: {{ toJson .program.arguments }}
      env:
        {{- include "firn.variables" . | nindent 8 }}
      ports:
        - {name: http, containerPort: {{ .program.port }}}
      startupProbe:
        {{- include "firn.probe" (dict "path" .program.alive "scheme" .program.scheme "asks_certificate" $asks) | nindent 8 }}
        periodSeconds: 5
        failureThreshold: 36
      readinessProbe:
        {{- include "firn.probe" (dict "path" .program.ready "scheme" .program.scheme "asks_certificate" $asks) | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
      livenessProbe:
        {{- include "firn.probe" (dict "path" .program.alive "scheme" .program.scheme "asks_certificate" $asks) | nindent 8 }}
        periodSeconds: 20
        timeoutSeconds: 10
        failureThreshold: 6
      resources:
        requests: {cpu: {{ $values.cpu | quote }}, memory: {{ include "firn.memory" . }}Mi}
        limits: {memory: {{ include "firn.memory" . }}Mi}
      securityContext:
        {{- include "firn.powerless" . | nindent 8 }}
      volumeMounts:
        - {name: state, mountPath: /var/lib/firn}
        - {name: scratch, mountPath: /tmp}
        {{- if $room }}
        - {name: settings, mountPath: /etc/firn, readOnly: true}
        - {name: secrets, mountPath: /run/firn, readOnly: true}
        {{- else if .root.Values.ui.login.client_id }}
        - {name: secrets, mountPath: /run/firn, readOnly: true}
        {{- end }}
        {{- range $place, $mount := .root.Values.mounts }}
        - {name: mount-{{ $place }}, mountPath: {{ $mount.path }}, readOnly: true}
        {{- end }}
  volumes:
    - {name: scratch, emptyDir: {}}
    {{- if not $values.volume_gib }}
    - {name: state, emptyDir: {}}
    {{- end }}
    {{- if $room }}
    - {name: settings, configMap: {name: {{ include "firn.name" (dict "root" .root "name" $room) }}}}
    - name: secrets
      projected:
        defaultMode: 0440
        sources: {{- include "firn.secrets" (dict "root" .root "room" $room) | nindent 10 }}
    {{- else if .root.Values.ui.login.client_id }}
    {{- $secret := splitList "/" (required "ui.login.client_secret names no Secret" .root.Values.ui.login.client_secret) }}
    - name: secrets
      secret:
        secretName: {{ first $secret }}
        defaultMode: 0440
        items: [{key: {{ last $secret }}, path: oidc-client-secret}]
    {{- end }}
    {{- range $place, $mount := .root.Values.mounts }}
    {{- if $mount.secret }}
    - {name: mount-{{ $place }}, secret: {secretName: {{ $mount.secret }}, defaultMode: 0440}}
    {{- else }}
    - {name: mount-{{ $place }}, configMap: {name: {{ required "a mount has a secret or a config_map" $mount.config_map }}}}
    {{- end }}
    {{- end }}
{{- end }}

{{/* The environment of a program: {root, name, program}. */}}
{{- define "firn.variables" -}}
{{- if .program.room -}}
- {name: FIRN_CONFIG, value: /etc/firn/firn.toml}
{{- else -}}
- {name: FIRN_UI_API, value: "http://{{ include "firn.name" (dict "root" .root "name" "query") }}:{{ .root.Values.settings.query.http.port }}"}
- {name: FIRN_UI_ALLOWED_HOSTS, value: {{ concat (include "firn.hosts" (dict "root" .root "names" (list "ui")) | fromJsonArray) .root.Values.ui.allowed_hosts | join "," | quote }}}
- {name: FIRN_UI_ALLOWED_ORIGINS, value: {{ join "," .root.Values.ui.allowed_origins | quote }}}
{{- with .root.Values.settings.tls.ca }}
- {name: FIRN_TLS_CA, value: {{ . | quote }}}
{{- end }}
{{- if .root.Values.ui.login.client_id }}
- {name: FIRN_UI_OIDC_ISSUER, value: {{ required "ui.login needs settings.catalog.oidc.issuer" .root.Values.settings.catalog.oidc.issuer | quote }}}
- {name: FIRN_UI_OIDC_CLIENT_ID, value: {{ .root.Values.ui.login.client_id | quote }}}
- {name: FIRN_UI_OIDC_CLIENT_SECRET_FILE, value: /run/firn/oidc-client-secret}
- {name: FIRN_UI_OIDC_REDIRECT_URI, value: {{ required "ui.login.redirect_uri is empty" .root.Values.ui.login.redirect_uri | quote }}}
- {name: FIRN_UI_OIDC_SCOPE, value: {{ .root.Values.ui.login.scope | quote }}}
- {name: FIRN_UI_OIDC_TOKEN, value: {{ .root.Values.ui.login.token | quote }}}
{{- end }}
{{- end }}
{{- if eq .name "optimize" }}
{{- /* The image's own is stronger than the settings file. */}}
- {name: FIRN_OPTIMIZE_HTTP__PORT, value: {{ .program.port | quote }}}
- {name: SPARK_LOCAL_DIRS, value: /var/lib/firn/spark}
{{- end }}
{{- if and (has .name (list "ingest" "optimize")) (include "firn.on_cluster" .) }}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: FIRN_{{ upper .name }}_SPARK__OPTIONS, value: {{ include "firn.spark_options" (dict "root" .root "name" .name) | quote }}}
{{- end }}
{{- end }}
