{{/* The spec of a Job that runs one of the scripts against the database: dict "root" $ "what" "backup" */}}
{{- define "fluxqueue.postgres.job" -}}
{{- $root := .root }}
{{- $what := .what }}
{{- $config := $root.Values.postgres }}
{{- $backup := $config.backup }}
{{- $name := include "fluxqueue.postgres.name" $root }}
{{- $labels := include "fluxqueue.labels" (dict "root" $root "component" "backup") }}
{{- $claim := $backup.existingClaim | default (printf "%s-backup" $name) -}}
backoffLimit: {{ ternary 6 0 (eq $what "backup") }}
activeDeadlineSeconds: {{ $backup.timeoutSeconds }}
template:
  metadata:
    labels:
      {{- $labels | nindent 6 }}
  spec:
    serviceAccountName: {{ $name }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    restartPolicy: Never
    securityContext:
      {{- include "fluxqueue.podSecurityContext" (dict "root" $root "uid" $config.uid) | nindent 6 }}
    {{- include "fluxqueue.placement" (dict "root" $root "program" $config "component" "backup") | trim | nindent 4 }}
    containers:
      - name: {{ $what }}
        image: {{ include "fluxqueue.image" (dict "root" $root "image" $config.image) }}
        imagePullPolicy: {{ $config.image.pullPolicy }}
        command: [sh, /etc/fluxqueue-postgres/{{ $what }}.sh]
        env:
          - {name: PGHOST, value: {{ printf "%s.%s.svc" $name $root.Release.Namespace }}}
          - {name: PGPORT, value: {{ $config.port | quote }}}
          - {name: PGUSER, value: fluxqueue}
          - {name: PGDATABASE, value: fluxqueue}
          - {name: PGSSLMODE, value: verify-full}
          - {name: PGSSLROOTCERT, value: /etc/fluxqueue-postgres-ca/ca.crt}
          - {name: PGCONNECT_TIMEOUT, value: "30"}
          - name: PGPASSWORD
            valueFrom:
              secretKeyRef:
                name: {{ include "fluxqueue.database.secretName" $root }}
                key: password
          - {name: BACKUPS, value: /backup}
          - {name: KEEP, value: {{ $backup.keep | quote }}}
        resources:
          {{- toYaml $backup.resources | nindent 10 }}
        securityContext:
          {{- include "fluxqueue.containerSecurityContext" $root | nindent 10 }}
        volumeMounts:
          - name: scripts
            mountPath: /etc/fluxqueue-postgres
            readOnly: true
          - name: postgres-ca
            mountPath: /etc/fluxqueue-postgres-ca
            readOnly: true
          - name: backup
            mountPath: /backup
          - name: tmp
            mountPath: /tmp
    volumes:
      - name: scripts
        configMap:
          name: {{ $name }}
      - name: postgres-ca
        secret:
          secretName: {{ include "fluxqueue.postgres.tlsSecret" $root }}
          defaultMode: 0440
          items: [{key: ca.crt, path: ca.crt}]
      - name: backup
        persistentVolumeClaim:
          claimName: {{ $claim }}
      - name: tmp
        emptyDir:
          sizeLimit: 64Mi
{{- end -}}
