// Shapes that the review page works with, beyond the replies of the service.
declare namespace Review {
  /** A field as a form needs it; what the service sends has all of them. */
  type FormField = Pick<Api.FormField, "name" | "kind"> & {
    label?: string;
    /** Of choice and choices. */
    options?: { value: string; label?: string | null }[] | null;
    required?: boolean;
    min?: number | null;
    max?: number | null;
    help?: string | null;
  };

  type PayloadKind = Api.ReviewDocument["payload"];

  /** What a reviewer needs to know of a policy. */
  type ReviewSettings = Api.ReviewReply;

  interface Lease {
    task: string;
    seat: number;
    epoch: number;
    token: string;
  }

  /** A task that this reviewer holds. */
  interface Claim extends Lease {
    expert: string;
    lease_until: number;
    deadline: number | null;
    waiting_since: number;
    payload: unknown;
    model_answer?: unknown;
  }

  /** What was entered, by field. */
  type Values = Record<string, unknown>;

  interface QueueStatus {
    waiting: number;
    claimed: number;
    next_free_at: number | null;
    why_empty: string | null;
    text: string;
    done: number;
    done_today: number;
    cost_today: Record<string, number>;
  }

  /** An unfinished answer. */
  interface Draft {
    values: Values;
    /** Seconds of active time so far. */
    activeS: number;
    /** As corrected by the reviewer; null: as the timer says. */
    cost: number | null;
    /** When it was kept, in milliseconds. */
    at: number;
  }

  /** waiting → sending → sent | conflict | refused; sending → waiting when no reply came. */
  type State = "waiting" | "sending" | "sent" | "conflict" | "refused";

  /** An answer on its way. */
  interface Entry extends Draft {
    id: string;
    call: "complete" | "correct" | "effort";
    body: Lease & Record<string, unknown>;
    state: State;
    /** Milliseconds since 1970: not before. */
    sendAt: number;
    attempts: number;
    /** Why it was refused, or could not be sent yet. */
    detail: string;
    /** The answer, to be read. */
    text: string;
    /** Of the reply, where the policy shows it afterwards. */
    modelAnswer?: unknown;
  }
}
