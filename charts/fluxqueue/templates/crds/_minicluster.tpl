{{/* A volume of a MiniCluster's container, and where it is mounted. */}}
{{- define "fluxqueue.crd.minicluster.volume" -}}
type: object
properties:
  csiDriver: {type: string, maxLength: 253}
  csiDriverAttributes: {type: object, maxProperties: 64, additionalProperties: {type: string, maxLength: 4096}}
  secretName: {type: string, maxLength: 253}
  emptyDir: {type: boolean, description: Mounted at /dev/shm whatever path says}
  emptyDirMedium: {type: string, maxLength: 32}
  emptyDirSizeLimit: {x-kubernetes-int-or-string: true, maxLength: 32}
  hostPath: {type: string, maxLength: 4096}
  configMapName: {type: string, maxLength: 253}
  items: {type: object, maxProperties: 256, additionalProperties: {type: string, maxLength: 4096}}
  claimName: {type: string, maxLength: 253}
  path: {type: string, maxLength: 4096, description: Where it is mounted}
  readOnly: {type: boolean}
{{- end -}}

{{/* A container of the brokers' pods or of the services pod. */}}
{{- define "fluxqueue.crd.minicluster.container" -}}
type: object
properties:
  image: {type: string, maxLength: 1024}
  name: {type: string, maxLength: 63}
  command: {type: string, maxLength: 65536, description: What to run; none is a session}
  workingDir: {type: string, maxLength: 4096}
  pullAlways: {type: boolean}
  imagePullPolicy: {type: string, enum: ["", Always, IfNotPresent, Never]}
  imagePullSecret: {type: string, maxLength: 253}
  ports:
    type: array
    maxItems: 64
    items: {type: integer, format: int32, minimum: 1, maximum: 65535}
  environment: {type: object, maxProperties: 512, additionalProperties: {type: string, maxLength: 65536}}
  secrets:
    type: object
    description: Environment variables whose values are keys of Secrets.
    maxProperties: 256
    additionalProperties:
      type: object
      required: [name, key]
      properties:
        name: {type: string, minLength: 1, maxLength: 253}
        key: {type: string, minLength: 1, maxLength: 253}
  runFlux: {type: boolean, description: Whether this container runs the broker}
  launcher: {type: boolean, description: The command submits jobs itself}
  batch: {type: boolean, description: Each line of the command is a job}
  batchRaw: {type: boolean, description: The command is a batch script as it stands}
  logs: {type: string, maxLength: 4096, description: Where a batch leaves its output}
  noWrapEntrypoint: {type: boolean}
  volumes:
    type: object
    maxProperties: 64
    additionalProperties:
      {{- include "fluxqueue.crd.minicluster.volume" . | nindent 6 }}
  lifeCycle:
    type: object
    properties:
      postStartExec: {type: string, maxLength: 4096}
      preStopExec: {type: string, maxLength: 4096}
  resources: {type: object, description: As in a pod, maxProperties: 64, x-kubernetes-preserve-unknown-fields: true}
  securityContext: {type: object, description: As in a pod, maxProperties: 64, x-kubernetes-preserve-unknown-fields: true}
  commands:
    type: object
    description: Shell text around the command.
    properties:
      prefix: {type: string, maxLength: 4096}
      script: {type: string, maxLength: 262144}
      init: {type: string, maxLength: 65536}
      pre: {type: string, maxLength: 65536}
      post: {type: string, maxLength: 65536}
      workerPre: {type: string, maxLength: 65536}
      brokerPre: {type: string, maxLength: 65536}
      servicePre: {type: string, maxLength: 65536}
{{- end -}}
