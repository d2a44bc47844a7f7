/** What the server hands to the pages' scripts; see server/pages/figures.py and the page-data of each template. */

export interface Chart {
  id: string;
  title: string;
  series: string;
  names: string[];
  also?: string[];
  marks?: boolean;
  help: string;
  log: boolean;
  zero: boolean;
  powers: boolean;
  speed: boolean;
  lane: string | null;
  layout: Record<string, any>;
}

export interface LineStyle {
  slot: string;
  colour: { light: string; dark: string };
  dash: string;
  mean_width: number;
  seed_width: number;
  seed_opacity: number;
  band_opacity: number;
}

export interface Group {
  name: string;
  style: LineStyle;
  emulated: boolean;
  baseline: boolean;
  runs: RunOfGroup[];
}

/** ``started_at``: unix seconds. What is not recorded is null or absent. */
export interface RunOfGroup {
  id: number;
  label: string;
  samples_per_step?: number | null;
  tokens_per_step?: number | null;
  started_at?: number | null;
}

/** How a chart is looked at. */
export interface View {
  theme: Theme;
  full: boolean;
  skips?: Map<number, Set<number>>;
  axis?: "step" | "time" | "wall" | "samples" | "tokens";
  smooth?: number;
}

export interface PageData {
  id: number;
  done: boolean;
  waiting: boolean;
  steps: number;
  max_points: number;
  plotly: string;
  themes: Record<Theme, Record<string, string>>;
  config: Record<string, unknown>;
  charts: Chart[];
  figures?: { id: string; data: any[]; layout: Record<string, any> }[];
  whatif?: { cell: number; low: number; high: number; windows: Record<string, [number, number, number]> } | null;
  groups: Group[];
  marks?: { recipe: string; step: number; text: string }[];
  skips: any;
  attempt: number;
  place: string;
}

export type Theme = "light" | "dark";

export interface Points {
  steps: number[];
  values: number[];
  times?: number[]; // unix seconds; empty unless they were asked for
  attempt: number;
  stored: number;
  kind: string;
  binWidth: number;
}

/** Where a drawing takes its points from. */
export interface Source {
  get(run: number, name: string): Points | undefined;
}

/** The points of a window of one series by run. */
export interface Closeup {
  name: string;
  range: [number, number];
  points: Map<number, Points>;
}

/** Points as they travel: non-finite values by their names. */
export interface Window {
  steps: number[];
  values: (number | string | null)[];
  times?: (number | string | null)[];
  kind?: string;
  num_stored?: number;
  bin_width?: number | null;
}

export interface Note {
  text: string;
  bad?: boolean;
  clip?: boolean;
}

export interface Drawing {
  traces: Record<string, any>[];
  range: [number, number] | null;
  clips: boolean;
  log: boolean;
  notes: Note[];
  empty: boolean;
}

declare global {
  interface Window {
    Plotly: any;
  }
}
