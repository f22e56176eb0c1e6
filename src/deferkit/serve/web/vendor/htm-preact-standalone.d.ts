// Types of the parts of htm/preact/standalone that the pages use; the npm package has none for this file.
export interface VNode {
  type: unknown;
  props: Record<string, unknown>;
}
export type Child = VNode | VNode[] | string | number | boolean | null | undefined | Child[];
export type Component<P = any> = (props: P) => Child;
export function h(type: string | Component, props: Record<string, unknown> | null, ...children: unknown[]): VNode;
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
export function render(tree: Child, parent: Element): void;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useReducer<S, A>(reducer: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs?: readonly unknown[]): T;
export function useCallback<F extends (...given: any[]) => unknown>(call: F, inputs: readonly unknown[]): F;
export function useErrorBoundary(caught?: (error: unknown) => void): [unknown, () => void];
