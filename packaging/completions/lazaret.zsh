#compdef lazaret
# zsh completion of lazaret; generated, do not edit.

_lazaret() {
    local cmd='' word='' prev=${words[CURRENT-1]}
    local -a flags items
    for word in ${words[2,CURRENT-1]}; do
        case "$cmd $word" in
            ' init') cmd='init' ;;
            ' doctor') cmd='doctor' ;;
            ' status') cmd='status' ;;
            ' domain') cmd='domain' ;;
            ' git') cmd='git' ;;
            ' config') cmd='config' ;;
            ' trust') cmd='trust' ;;
            ' completion') cmd='completion' ;;
            ' help') cmd='help' ;;
            'git status') cmd='git status' ;;
            'git diff') cmd='git diff' ;;
            'git log') cmd='git log' ;;
            'git merge') cmd='git merge' ;;
            'git rebase') cmd='git rebase' ;;
            'git include') cmd='git include' ;;
            'git drop') cmd='git drop' ;;
            'git export') cmd='git export' ;;
            'config show') cmd='config show' ;;
            'config check') cmd='config check' ;;
        esac
    done
    case "$cmd $prev" in
        'init --scope') compadd -- user system; return ;;
        'init --runtime-path') _files; return ;;
        'init --podman-version') _message 'VERSION'; return ;;
        'domain --profile'|'domain -p') _message 'NAME'; return ;;
        'domain --config') _files; return ;;
        'git status --profile'|'git status -p') _message 'NAME'; return ;;
        'git status --config') _files; return ;;
        'git diff --profile'|'git diff -p') _message 'NAME'; return ;;
        'git diff --config') _files; return ;;
        'git log --profile'|'git log -p') _message 'NAME'; return ;;
        'git log --config') _files; return ;;
        'git merge --profile'|'git merge -p') _message 'NAME'; return ;;
        'git merge --config') _files; return ;;
        'git rebase --profile'|'git rebase -p') _message 'NAME'; return ;;
        'git rebase --config') _files; return ;;
        'git include --profile'|'git include -p') _message 'NAME'; return ;;
        'git include --config') _files; return ;;
        'git drop --profile'|'git drop -p') _message 'NAME'; return ;;
        'git drop --config') _files; return ;;
        'git export --profile'|'git export -p') _message 'NAME'; return ;;
        'git export --config') _files; return ;;
        'config show --profile') _message 'NAME'; return ;;
        'config show --config') _files; return ;;
        'config show --workspace') _files; return ;;
        'config check --config') _files; return ;;
        'config check --workspace') _files; return ;;
    esac
    case $cmd in
        '')
            flags=(
                '--version:print version and commit'
                '--help:show help'
                '-h:show help'
            )
            items=(
                'init:register lazaret as a runtime of podman'
                'doctor:check whether this machine can run sandboxes'
                'status:show the domains in use, their containers and sessions'
                'domain:print the domain of a workspace: its hash and its paths'
                'git:look at an agent'\''s branch, take it over, and export its repositories'
                'config:show or check the configuration'
                'trust:let the configuration file of a workspace loosen the sandbox'
                'completion:print the completion script of a shell'
                'help:show the help of a command'
            )
            ;;
        'init')
            flags=(
                '--scope:whose podman: user|system; root means system if not told otherwise, others user'
                '--runtime-path:FILE to register; beside lazaret if not given'
                '--podman-version:write for podman VERSION, not for the installed one'
                '--dry-run:show the change and touch nothing'
                '--uninstall:remove the drop-in again'
                '--force:replace or remove a drop-in that was changed by hand; a copy is kept'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'doctor')
            flags=(
                '--json:print one JSON object with all checks'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'status')
            flags=(
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'domain')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'status:show the agent'\''s branch, its worktree, and what waits for export'
                'diff:show what the agent'\''s branch changes: git diff HEAD...BRANCH'
                'log:show the commits of the agent'\''s branch: git log HEAD..BRANCH'
                'merge:merge the agent'\''s branch into yours: git merge BRANCH'
                'rebase:put the agent'\''s commits on top of your current commit'
                'include:copy your uncommitted changes into the agent'\''s worktree'
                'drop:remove the agent'\''s branch and worktree'
                'export:put a repository that was born in a sandbox onto the host'
            )
            ;;
        'git status')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git diff')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git log')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git merge')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git rebase')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git include')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git drop')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--yes:do not ask'
                '-y:do not ask'
                '--force:lose what is not merged'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git export')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--list:list what can be exported; PATH is the workspace'
                '--force:export in spite of git fsck'\''s errors'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'config')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'show:print every effective value and where it comes from'
                'check:report every mistake with file, line and key'
            )
            ;;
        'config show')
            flags=(
                '--profile:leave out the other profiles than NAME'
                '--json:print one JSON object'
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'config check')
            flags=(
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'trust')
            flags=(
                '--yes:do not ask'
                '-y:do not ask'
                '--revoke:trust the file no longer'
                '--list:list the trusted files'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'completion')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'bash'
                'zsh'
                'fish'
            )
            ;;
        'help')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o -t options option flags
    else
        _describe -t commands command items
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lazaret "$@"
else
    compdef _lazaret lazaret
fi
