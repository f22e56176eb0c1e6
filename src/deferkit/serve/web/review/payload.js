// What a reviewer is to judge, drawn by its kind. Everything in it is text of strangers.

import { html, useState } from "../dom.js";
import { number } from "../format.js";
import { marked, PayloadText } from "./payload_text.js";

/** @typedef {Record<string, unknown>} Fields */

const ROWS = 100;
const COLUMNS = 40;
const PICTURE_DATA = /^data:image\/(png|jpeg|gif|webp|avif);base64,/;

/** @param {{ payload: unknown, kind?: Review.PayloadKind }} props */
export function Payload({ payload, kind = "auto" }) {
  if (payload === undefined || payload === null || payload === "") {
    return html`<p class="muted">This task was sent without anything to show.</p>`;
  }
  const Kind = KINDS[kind === "auto" ? kindOf(payload) : kind] ?? Json;
  return html`<${Kind} payload=${payload} />`;
}

/**
 * The kind that fits a payload.
 * @param {unknown} payload
 * @returns {Exclude<Review.PayloadKind, "auto">}
 */
export function kindOf(payload) {
  if (typeof payload === "string") return PICTURE_DATA.test(payload) ? "image" : "text";
  if (typeof payload === "number" || typeof payload === "boolean") return "text";
  if (Array.isArray(payload)) {
    if (payload.length && payload.every(isMessage)) return "chat";
    return payload.length && payload.every(isFields) ? "table" : "json";
  }
  if (isFields(payload) && Array.isArray(payload.messages) && payload.messages.every(isMessage)) return "chat";
  if (isFields(payload) && PICTURE_DATA.test(String(payload.image ?? ""))) return "image";
  return isFields(payload) ? "fields" : "json";
}

/**
 * @param {unknown} value
 * @returns {value is Fields}
 */
function isFields(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value */
function isMessage(value) {
  return isFields(value) && typeof value.role === "string" && "content" in value;
}

/**
 * A value in one piece of text.
 * @param {unknown} value
 */
function textOf(value) {
  if (typeof value === "string") return value;
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

/** @param {{ payload: unknown }} props */
function Text({ payload }) {
  return html`<${PayloadText} text=${textOf(payload)} />`;
}

/** @param {{ payload: unknown }} props */
function Json({ payload }) {
  return html`<${PayloadText} text=${JSON.stringify(payload, null, 2)} mono />`;
}

/** @param {{ payload: unknown }} props */
function FieldList({ payload }) {
  if (!isFields(payload)) return html`<${Json} payload=${payload} />`;
  return html`<dl class="payload-fields">
    ${Object.entries(payload).map(([name, value]) => {
      const plain = typeof value !== "object" || value === null;
      return html`<div><dt dir="auto">${marked(name)}</dt><dd><${PayloadText} text=${textOf(value)} mono=${!plain} /></dd></div>`;
    })}
  </dl>`;
}

/** @param {{ payload: unknown }} props */
function Table({ payload }) {
  const [shown, setShown] = useState(ROWS);
  const rows = Array.isArray(payload) ? payload.filter(isFields) : [];
  if (!rows.length) return html`<${Json} payload=${payload} />`;
  const names = [...new Set(rows.slice(0, 1000).flatMap(Object.keys))].slice(0, COLUMNS);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table">
      <table class="data payload-table">
        <thead><tr>${names.map((name) => html`<th scope="col" dir="auto">${marked(name)}</th>`)}</tr></thead>
        <tbody>
          ${rows.slice(0, shown).map(
            (row) => html`<tr>${names.map((name) => html`<td dir="auto">${marked(textOf(row[name]).slice(0, 2000))}</td>`)}</tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${rows.length > shown &&
    html`<p class="row small muted">
      ${number(shown)} of ${number(rows.length)} rows
      <button type="button" class="button small" onClick=${() => setShown(shown + 10 * ROWS)}>Show more</button>
    </p>`}`;
}

/** @param {{ payload: unknown }} props */
function Chat({ payload }) {
  const messages = isFields(payload) ? payload.messages : payload;
  if (!Array.isArray(messages) || !messages.every(isMessage)) return html`<${Json} payload=${payload} />`;
  return html`<ol class="chat">
    ${messages.map(
      ({ role, content }) => html`<li class=${role === "user" ? "chat-message" : "chat-message other"}>
        <p class="small muted strong" dir="auto">${marked(role)}</p>
        <${PayloadText} text=${messageText(content)} />
      </li>`,
    )}
  </ol>`;
}

/**
 * The text of a message that is text, or a list of parts.
 * @param {unknown} content
 */
function messageText(content) {
  if (!Array.isArray(content)) return textOf(content);
  return content.map((part) => (isFields(part) && typeof part.text === "string" ? part.text : textOf(part))).join("\n");
}

/** @param {{ payload: unknown }} props */
function Picture({ payload }) {
  const [failed, setFailed] = useState(false);
  const fields = isFields(payload) ? payload : {};
  const source = typeof payload === "string" ? payload : (fields.image ?? fields.url ?? fields.src);
  if (typeof source !== "string") return html`<${FieldList} payload=${payload} />`;
  const shown = PICTURE_DATA.test(source) || /^https:\/\//.test(source) || /^\/[^/]/.test(source);
  const { image, url, src, alt, ...others } = fields;
  const words = typeof alt === "string" ? alt : "The picture to review";
  return html`<figure class="stack tight">
    ${shown && !failed
      ? html`<img class="payload-picture" src=${source} alt=${words} referrerpolicy="no-referrer" onError=${() => setFailed(true)} />`
      : html`<p class="notice warn">The picture cannot be shown. Hosts of pictures are allowed with --image-hosts.</p>
          <${PayloadText} text=${source.slice(0, 500)} mono />`}
    ${Object.keys(others).length > 0 && html`<figcaption><${FieldList} payload=${others} /></figcaption>`}
  </figure>`;
}

/** @type {Record<Exclude<Review.PayloadKind, "auto">, import("../dom.js").Component>} */
const KINDS = { text: Text, fields: FieldList, table: Table, chat: Chat, image: Picture, json: Json };
