// Rules for the report's script: real mistakes alone, and nothing that has to be installed but ESLint itself. `Plot` is the vendored library.
const browser = ["IntersectionObserver", "Plot", "addEventListener", "cancelAnimationFrame", "document", "innerHeight", "innerWidth",
  "localStorage", "matchMedia", "requestAnimationFrame"];

export default [{
  files: ["src/wherefrom/report/assets/script/*.js"],
  languageOptions: { ecmaVersion: 2022, sourceType: "module", globals: Object.fromEntries(browser.map((name) => [name, "readonly"])) },
  linterOptions: { reportUnusedDisableDirectives: "error" },
  rules: {
    "array-callback-return": "error",
    "consistent-return": "error",
    "eqeqeq": "error",
    "no-const-assign": "error",
    "no-dupe-keys": "error",
    "no-duplicate-imports": "error",
    "no-redeclare": "error",
    "no-shadow": "error",
    "no-undef": "error",
    "no-unreachable": "error",
    "no-unused-vars": "error",
    "no-use-before-define": ["error", { functions: false, variables: false }],
    "no-var": "error",
    "prefer-const": "error",
  },
}];
