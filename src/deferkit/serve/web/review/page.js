// The review page: one task, its form, the reviewer's progress.

import { ApiError, get, messageOf, policyPath } from "../api.js";
import { html, useEffect, useRef, useState } from "../dom.js";
import { keep, kept } from "../storage.js";
import { DeskView } from "./desk_view.js";
import { useOnlyTab } from "./only_tab.js";

/** @typedef {import("../session.js").Session} Session */

const RETRY_MS = 2000;
const REVIEWER = "reviewer";

/** @param {{ params: Record<string, string>, session: Session }} props */
export default function ReviewPage({ params, session }) {
  const policy = params.name ?? "";
  const [chosen, setChosen] = useState(() => String(kept(REVIEWER) ?? ""));
  const reviewer = session.reviewer ?? (session.open ? chosen : "");
  const [active, take] = useOnlyTab(`${session.tenant}/${policy}/${reviewer}`);
  const [settings, trouble, wrong] = useSettings(policy);

  if (wrong) return html`<${Message} title=${`The policy ${policy} cannot be reviewed`} text=${wrong} />`;
  if (!reviewer && !session.open) {
    const next = `/console/login?next=${encodeURIComponent(location.pathname)}`;
    return html`<${Message} title="Who reviews?" text="Log in with your name as a reviewer: answers are kept under it.">
      <a class="button primary" href=${next}>Log in with a name</a>
    <//>`;
  }
  if (!reviewer) {
    const named = (/** @type {string} */ name) => {
      keep(REVIEWER, name);
      setChosen(name);
    };
    return html`<${NameForm} policy=${policy} onName=${named} />`;
  }
  if (!active) {
    return html`<${Message} title="You review in another tab" text="Only one tab at a time claims tasks for you.">
      <button type="button" class="button primary" onClick=${take}>Review here</button>
    <//>`;
  }
  if (!settings) return trouble ? html`<${Message} title="Waiting for the service" text=${trouble} />` : null;
  const rename = session.reviewer ? null : () => setChosen("");
  return html`<${DeskView} key=${reviewer} settings=${settings} reviewer=${reviewer} tenant=${session.tenant} onRename=${rename} />`;
}

/**
 * The settings of a policy's review, read until they are there; what keeps them away, and why there are none.
 * @param {string} policy
 * @returns {[Review.ReviewSettings | null, string, string]}
 */
function useSettings(policy) {
  const [settings, setSettings] = useState(/** @type {Review.ReviewSettings | null} */ (null));
  const [trouble, setTrouble] = useState("");
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    let timer = 0;
    let stopped = false;
    const read = async () => {
      try {
        const found = await get(policyPath(policy, "/review"));
        if (!stopped) setSettings(found);
      } catch (error) {
        if (stopped) return;
        if (error instanceof ApiError && !error.temporary) setWrong(messageOf(error));
        else {
          setTrouble(messageOf(error));
          timer = setTimeout(read, RETRY_MS);
        }
      }
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [policy]);
  return [settings, trouble, wrong];
}

/** @param {{ policy: string, onName: (name: string) => void }} props */
function NameForm({ policy, onName }) {
  const [name, setName] = useState("");
  const input = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => input.current?.focus(), []);
  /** @param {Event} event */
  const enter = (event) => {
    event.preventDefault();
    if (name.trim()) onName(name.trim());
  };
  return html`<div class="page narrow"><form class="card stack" onSubmit=${enter}>
    <h1>Review ${policy}</h1>
    <div class="field">
      <label for="name">Your name</label>
      <input id="name" maxlength="128" required autocomplete="nickname" value=${name} aria-describedby="name-help"
        ref=${input} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <p class="help" id="name-help">Your answers are kept under it. This browser remembers it.</p>
    </div>
    <div><button class="button primary">Begin</button></div>
  </form></div>`;
}

/** @param {{ title: string, text: string, children?: unknown }} props */
function Message({ title, text, children }) {
  return html`<div class="page narrow"><div class="card empty">
    <h1>${title}</h1>
    <p class="muted">${text}</p>
    ${children}
    <p class="small"><a href="/review">All policies</a></p>
  </div></div>`;
}
