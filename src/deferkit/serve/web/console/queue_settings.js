// Deadlines, leases, reviewers and retention of a policy.

import { html, useState } from "../dom.js";
import { policyPath, patch } from "../api.js";
import { DurationField } from "./duration_field.js";
import { SaveButton } from "./save_button.js";

/** @param {{ policy: Api.PolicySpec }} props */
export function QueueSettings({ policy }) {
  const [saved, setSaved] = useState(policy);
  const [given, setGiven] = useState(policy);
  /** @param {Partial<Api.PolicySpec>} change */
  const change = (change) => setGiven((before) => ({ ...before, ...change }));
  /** @type {(keyof Api.PolicySpec)[]} */
  const fields = ["deadline_s", "after_deadline", "lease_s", "reviewers", "learning_window_s", "retention_s"];
  const changes = Object.fromEntries(fields.filter((name) => given[name] !== saved[name]).map((name) => [name, given[name]]));
  const save = async () => {
    await patch(policyPath(policy.name), changes);
    setSaved(given);
  };
  return html`<section class="card stack">
    <h2>Queue and retention</h2>
    <div class="field-row three">
      <${DurationField}
        id="deadline"
        label="Deadline"
        help="Maximum time that a task waits for a reviewer."
        none="none"
        value=${given.deadline_s}
        onChange=${(/** @type {number | null} */ value) => change({ deadline_s: value })}
      />
      <div class="field">
        <label for="after-deadline">After the deadline</label>
        <select
          id="after-deadline"
          value=${given.after_deadline}
          onChange=${(/** @type {Event} */ event) =>
            change({ after_deadline: /** @type {"model" | "wait"} */ (/** @type {HTMLSelectElement} */ (event.target).value) })}
        >
          <option value="model">use the model’s answer</option>
          <option value="wait">keep waiting</option>
        </select>
      </div>
      <div class="field">
        <label for="reviewers">Reviewers for each task</label>
        <input
          id="reviewers"
          type="number"
          min="1"
          max="16"
          required
          value=${given.reviewers}
          onChange=${(/** @type {Event} */ event) => change({ reviewers: Number(/** @type {HTMLInputElement} */ (event.target).value) })}
        />
        <p class="help">Each answers without seeing the others.</p>
      </div>
      <${DurationField}
        id="lease"
        label="Lease"
        help="A claim without activity for this long ends."
        value=${given.lease_s}
        onChange=${(/** @type {number | null} */ value) => value !== null && change({ lease_s: value })}
      />
      <${DurationField}
        id="learning-window"
        label="Learning window"
        help="Later outcomes are booked, but not learned from."
        none="no end"
        value=${given.learning_window_s}
        onChange=${(/** @type {number | null} */ value) => change({ learning_window_s: value })}
      />
      <${DurationField}
        id="retention"
        label="Retention"
        help="After this time, the payload and the model’s answer of ended tasks are erased."
        none="kept"
        value=${given.retention_s ?? null}
        onChange=${(/** @type {number | null} */ value) => change({ retention_s: value })}
      />
    </div>
    <${SaveButton} changed=${Object.keys(changes).length > 0} onSave=${save} onUndo=${() => setGiven(saved)} />
  </section>`;
}
