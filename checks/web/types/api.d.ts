// Replies of the service; `python -m checks.web_types` writes this file from its OpenAPI document.
declare namespace Api {
  /** A condition that needs attention. */
  interface Alarm {
    kind: "drift" | "failing" | "frozen" | "horizon_over" | "overspending" | "queue_age" | "suspense" | "unconfirmed" | "underspending" | "without_budget";
    text: string;
  }

  /** Undelivered events of a webhook: those that wait, and those that were given up because too many waited. */
  interface Backlog {
    waiting: number;
    dropped: number;
  }

  /** The budget of one resource. Without a total it is unlimited.

    With a total it needs one of `horizon`, `until` and `every`, and a `max_cost` or a `limit`. */
  interface BudgetSpec {
    total: number | null;
    horizon: number | null;
    max_cost: number | null;
    max_reported_cost?: number | null;
    until?: number | string;
    every?: string;
    zone?: string;
    start?: number | string;
    carry?: number | null;
    hold?: number | "auto";
    limit?: number;
  }

  /** The account of a resource, over all periods; a total of null is unlimited. */
  interface BudgetState {
    total: number | null;
    reserved: number;
    posted: number;
    suspense: number;
    free: number | null;
    period: PeriodState | null;
  }

  /** Tasks of about the same prediction. */
  interface CalibrationBin {
    predicted: number;
    observed: number;
    error: number | null;
    count: number;
  }

  /** A claim of a task's seat. */
  interface ClaimLine {
    seat: number;
    epoch: number;
    reviewer: string;
    at: number;
    effort: number | Record<string, number> | null;
  }

  /** What a feature adds to an estimate, with its standard error. */
  interface Coefficient {
    feature: string;
    value: number;
    error: number;
  }

  /** A decision with all the values that it was based on, as in the log. */
  interface DecisionReply {
    task: string;
    id: number;
    route: string;
    reason: string;
    propensity: number;
    price: number | Record<string, number>;
    budget_left: number | Record<string, number | null> | null;
    reserved: number | Record<string, number>;
    expected_cost: number | Record<string, number>;
    estimates: Record<string, number>;
    widths: Record<string, number>;
    costs: Record<string, number | Record<string, number>>;
    cost_widths: Record<string, number | Record<string, number>>;
  }

  /** A delivery of an event: waiting (for the attempt at `due`), delivered, or dead. */
  interface DeliveryLine {
    id: string;
    event: string;
    state: string;
    attempts: number;
    status: number | null;
    error: string | null;
    created: number;
    due: number | null;
    ended: number | null;
  }

  /** Deliveries, latest first. */
  interface DeliveryPage {
    deliveries: DeliveryLine[];
  }

  /** A reward or cost whose distribution changed, so that most of its old observations are discounted. */
  interface DriftState {
    target: string;
    decision: number;
    strength: number;
    times: number;
    since: number | null;
    before: number | null;
    after: number | null;
    error: number | null;
  }

  /** The estimates of a policy. */
  interface EstimatesReply {
    targets: TargetEstimate[];
    drifts: DriftState[];
    representation: string;
  }

  /** Named features. A category has its levels, or a maximum number of levels to accept. */
  interface FeatureSpec {
    numbers: string[];
    categories: Record<string, string[] | number>;
  }

  /** A field of a form. `min` and `max` bound a number, the length of a text, or the number of choices. */
  interface FormField {
    name: string;
    kind: "boolean" | "choice" | "choices" | "number" | "text";
    label: string;
    options: FormOption[];
    required: boolean;
    min: number | null;
    max: number | null;
    help: string;
  }

  /** A value of a choice, with a label. The label is the value by default. */
  interface FormOption {
    value: string;
    label: string | null;
  }

  /** The gain of experts over the model, in reward. */
  interface GainState {
    value: number;
    error: number | null;
    basis: string;
  }

  /** A key, without its secret. Times are seconds since 1970; `last_used` is accurate to about a minute. */
  interface KeyLine {
    id: string;
    scopes: string[];
    name: string;
    created: number;
    expires: number | null;
    revoked: number | null;
    last_used: number | null;
    reviewer: string | null;
  }

  /** All keys of a tenant. */
  interface KeyPage {
    keys: KeyLine[];
  }

  /** A row of the log, as it was recorded. */
  interface LogLine {
    seq: number;
    at: number;
    kind: string;
    task: string | null;
    record: Record<string, unknown>;
    hash: string;
  }

  /** The model's reward is 1 if it gave the majority label, else 0; an expert's reward is the share of that label. */
  interface MatchRule {
    kind: "match";
  }

  /** A new key. Only this reply contains the secret. */
  interface NewKeyReply {
    key: string;
    id: string;
    scopes: string[];
    name: string;
    created: number;
    expires: number | null;
  }

  /** A new webhook. Only this reply contains the secret that signs its calls. */
  interface NewWebhookReply {
    id: string;
    url: string;
    events: string[];
    policies: string[] | null;
    models: boolean;
    created: number;
    secret: string;
  }

  /** The status of all policies of a tenant. */
  interface Overview {
    now: number;
    policies: Standing[];
  }

  /** The current period of a budget that renews, or the time up to its end. Times are seconds since 1970.

    total = carried + held + granted + changed. */
  interface PeriodState {
    number: number;
    start: number;
    end: number;
    total: number;
    posted: number;
    granted: number;
    carried: number;
    held: number;
    changed: number;
    tasks: number;
    tasks_left: number | null;
    pace: number | null;
    runs_out_at: number | null;
    renews: boolean;
    over: boolean;
  }

  /** Settings of a policy: features, experts, budgets, learning, deadlines, review. */
  interface PolicySpec {
    name: string;
    features: number | FeatureSpec;
    budget: Record<string, BudgetSpec>;
    experts?: string[];
    link?: "auto" | "identity" | "logistic";
    cost_link: "identity" | "logistic";
    pacing: "adaptive" | "gradient" | "paper" | "resolve";
    exploration: number | null;
    rule?: "index" | "interval";
    forget?: "auto" | "never";
    representation?: "auto" | "linear";
    outliers?: "clip" | "keep" | "refuse";
    explore_floor: number;
    warm_up: number | null;
    reward_range: [number, number];
    memory: number;
    seed: number;
    embedding: Record<string, unknown> | null;
    learning_window_s: number | null;
    deadline_s: number | null;
    after_deadline: "model" | "wait";
    lease_s: number;
    reviewers: number;
    review?: ReviewDocument | null;
    retention_s?: number | null;
    defaults?: "2026.11" | "2026.12";
    ranks?: boolean;
    confidence?: number | string;
  }

  /** A seat, the place of one reviewer at a task, that waits or is claimed. */
  interface QueueLine {
    task: string;
    seat: number;
    state: string;
    expert: string;
    priority: number;
    created: number;
    lease_until: number | null;
    reviewer: string | null;
    deadline: number | null;
    declines: number;
  }

  /** A page of seats, in the order of claims. `next` is the start of the next page. */
  interface QueuePage {
    seats: QueueLine[];
    next: string | null;
  }

  /** Counts of the review queue, in seats. */
  interface QueueState {
    waiting: number;
    claimed: number;
    oldest_s: number | null;
  }

  /** The review document: form, guidelines and display. An answer is an object of the form's fields.

    The first field is the label. */
  interface ReviewDocument {
    form: FormField[];
    guidelines: string;
    payload: "auto" | "chat" | "fields" | "image" | "json" | "table" | "text";
    model_answer: "after" | "hidden" | "shown";
    timer: Timer | null;
    reward_rule: MatchRule | TableRule | null;
  }

  /** The review document of a policy, with its lease, experts and timer unit. */
  interface ReviewReply {
    policy: string;
    review: ReviewDocument;
    lease_s: number;
    reviewers: number;
    experts: string[];
    unit: string;
    max_cost: number | null;
    stops: boolean;
  }

  /** Statistics of a reviewer. Cost, time and agreement are those of the latest 20,000 answers of the policy. */
  interface ReviewerLine {
    reviewer: string;
    done: number;
    held: number;
    declined: number;
    lapsed: number;
    active_s: number | null;
    cost: Record<string, number>;
    agrees_with_model: number | null;
    agrees_with_colleagues: number | null;
    last: number | null;
  }

  /** Statistics of the reviewers of a policy, sorted by name. */
  interface ReviewersReply {
    reviewers: ReviewerLine[];
  }

  /** A seat, the place of one reviewer at a task, with the answer. */
  interface SeatLine {
    seat: number;
    reviewer: string | null;
    state: string;
    answer: unknown;
    cost: number | Record<string, number> | null;
    visible: boolean | null;
  }

  /** Time series: values at the end of consecutive time buckets. Counts and sums are cumulative. */
  interface SeriesReply {
    complete: boolean;
    read: number;
    records: number;
    width_s: number;
    start: number[];
    decisions: number[];
    deferred: number[];
    routes: Record<string, number[]>;
    reasons: Record<string, number[]>;
    posted: Record<string, number[]>;
    reserved: Record<string, number[]>;
    plan: Record<string, (number | null)[] | null>;
    price: Record<string, (number | null)[]>;
    gain: number[];
    gain_error: (number | null)[];
  }

  /** The status of a policy. Times are seconds since 1970. */
  interface Standing {
    name: string;
    decisions: number;
    routes: Record<string, number>;
    deferral_rate: number;
    unit: string;
    budget: Record<string, BudgetState>;
    horizon: number | null;
    planned: number | null;
    pace: number | null;
    runs_out_at: number | null;
    runs_out_task: number | null;
    price: number | Record<string, number>;
    next_unit: number | null;
    reward_range: [number, number];
    gain: GainState;
    held: string;
    queue: QueueState;
    alarms: Alarm[];
    state: string;
    remark: string;
  }

  /** Rewards from a table: by final label, then by the model's answer, then by decider. */
  interface TableRule {
    kind: "table";
    rewards: Record<string, Record<string, Record<string, number>>>;
  }

  /** The estimate of a reward ("model", an expert) or a cost ("cost of …"). */
  interface TargetEstimate {
    target: string;
    samples: number;
    samples_in_use: number;
    coefficients: Coefficient[];
    calibration: CalibrationBin[];
  }

  /** A task in a listing. Amounts are numbers, or objects by resource if there are several resources. */
  interface TaskLine {
    task: string;
    id: number;
    at: number;
    route: string;
    reason: string;
    state: string;
    final: string | null;
    price: number | Record<string, number>;
    estimates: Record<string, number>;
    expected_gain: number;
    cost: number | Record<string, number> | null;
    rewards: Record<string, number>;
    reviewers: string[];
  }

  /** A page of tasks, latest first. `next` is the start of the next page. */
  interface TaskPage {
    tasks: TaskLine[];
    next: number | null;
  }

  /** A decision with its explanation, outcome and history. */
  interface TaskReply {
    decision: DecisionReply;
    explanation: string;
    at: number;
    state: string;
    rewards: Record<string, number>;
    cost: number | Record<string, number> | null;
    final: string | null;
    answer: unknown;
    history: LogLine[];
    claims: ClaimLine[];
    payload: unknown;
    model_answer: unknown;
    seats: SeatLine[];
  }

  /** The resource that active time is counted in, and the seconds per unit. */
  interface Timer {
    resource: string;
    unit_s: number;
  }

  /** A mean reward per task, or a difference of two, with its standard error. */
  interface ValueWithError {
    value: number;
    error: number;
  }

  /** A webhook, without its secret. Times are seconds since 1970. */
  interface WebhookLine {
    id: string;
    url: string;
    events: string[];
    policies: string[] | null;
    models: boolean;
    created: number;
  }

  /** All webhooks of a tenant, and the backlog of each by its id. */
  interface WebhookPage {
    webhooks: WebhookLine[];
    backlogs: Record<string, Backlog>;
  }

  /** Progress and result of a what-if job. */
  interface WhatIfReply {
    job: string;
    state: string;
    progress: number;
    rows: WhatIfRow[];
    basis: string | null;
    remarks: string[];
    error: string | null;
  }

  /** A budget with its results, logged or estimated. The first row is "as it was". */
  interface WhatIfRow {
    budget: string;
    totals: Record<string, number | null>;
    asked: number;
    spent: Record<string, number>;
    price: number | Record<string, number>;
    reward: ValueWithError | null;
    difference: ValueWithError | null;
    unsupported: number;
  }
}
