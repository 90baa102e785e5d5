{{/* What Spark makes an executor's pod from: {root, name}. Spark adds image, resources and variables; the command starts
     what Spark's own images start. */}}
{{- define "firn.executor" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "firn.selector" (dict "root" .root "name" (printf "%s-executor" .name)) | nindent 4 }}
spec:
  automountServiceAccountToken: false
  securityContext:
    {{- include "firn.user" . | nindent 4 }}
  containers:
    - name: executor
      command: [python, -m, lake.spark_executor]
      securityContext:
        {{- include "firn.powerless" . | nindent 8 }}
      volumeMounts:
        - {name: scratch, mountPath: /tmp}
        - {name: state, mountPath: /var/lib/firn}
        {{- range $place, $mount := .root.Values.mounts }}
        - {name: mount-{{ $place }}, mountPath: {{ $mount.path }}, readOnly: true}
        {{- end }}
  volumes:
    - {name: scratch, emptyDir: {}}
    - {name: state, emptyDir: {}}
    {{- range $place, $mount := .root.Values.mounts }}
    {{- if $mount.secret }}
    - {name: mount-{{ $place }}, secret: {secretName: {{ $mount.secret }}, defaultMode: 0440}}
    {{- else }}
    - {name: mount-{{ $place }}, configMap: {name: {{ $mount.config_map }}}}
    {{- end }}
    {{- end }}
{{- end }}
