// Shapes of the page that creates a policy.
declare namespace NewPolicy {
  /** What a column is used for. */
  type Use = "number" | "category" | "shown" | "task" | "model" | "unused";

  interface Column {
    name: string;
    use: Use;
    /** Of the first rows. */
    values: string[];
    /** Different values, the most frequent first. */
    levels: string[];
  }

  /** A feature that was entered by hand. */
  interface Feature {
    name: string;
    kind: "number" | "category";
    levels: string;
  }

  interface PolicyDraft {
    name: string;
    /** Of a file; null: features were entered by hand. */
    columns: Column[] | null;
    features: Feature[];
    unit: string;
    /** Seconds of work in a unit; empty: the cost is not timed. */
    unitS: string;
    limited: boolean;
    total: string;
    /** What the budget is planned for: tasks, a period after which it is renewed, or until a day. */
    lasts: "tasks" | "day" | "week" | "month" | "until";
    horizon: string;
    /** The last day, as an input of dates has it. */
    until: string;
    /** What is not used is carried over, up to one allowance. */
    carries: boolean;
    /** Reviews can be stopped, so that less than the most is held for them. */
    stops: boolean;
    maxCost: string;
    question: string;
    /** One in a line. */
    options: string;
    guidelines: string;
    reviewers: string;
  }
}
