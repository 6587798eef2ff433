{{/* A condition as metav1.Condition has it. */}}
{{- define "fluxqueue.crd.condition" -}}
type: object
required: [type, status, lastTransitionTime]
properties:
  type: {type: string, minLength: 1, maxLength: 316}
  status: {type: string, enum: ["True", "False", Unknown]}
  reason: {type: string, maxLength: 1024}
  message: {type: string, maxLength: 32768}
  observedGeneration: {type: integer, format: int64, minimum: 0}
  lastTransitionTime: {type: string, format: date-time}
{{- end -}}
